#include "rendezvous/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "core/base/authentication.h"

namespace mslua {

void Stream::Close() {
  tls_.reset();
  fd_.Close();
}

short Stream::wants() const { return tls_ == nullptr ? short{POLLIN} : tls_->wants(); }

ssize_t Stream::Read(void* to, size_t size) {
  return tls_ == nullptr ? recv(fd_.get(), to, size, MSG_DONTWAIT) : tls_->Read(to, size);
}

ssize_t Stream::Write(const iovec* parts, int n) {
  if (tls_ != nullptr) return tls_->Write(parts, n);
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = n;
  return sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string Stream::ErrorText() const {
  const int error = errno;
  const Status broken = tls_ == nullptr ? absl::OkStatus() : tls_->broken();
  return broken.ok() ? strerror(error) : std::string(broken.message());
}

Status Stream::Problem(absl::string_view what) const {
  const int error = errno;
  const Status broken = tls_ == nullptr ? absl::OkStatus() : tls_->broken();
  if (!broken.ok()) return Status(broken.code(), absl::StrCat(what, ": ", broken.message()));
  errno = error;
  return ErrnoStatus(what);
}

void Stream::Break(const Status& why) {
  if (tls_ != nullptr) tls_->Break(why);
}

std::string Stream::Bound(const std::string& secret) const {
  return tls_ == nullptr ? secret : HmacSha256(tls_->SharedKey(), secret);
}

StatusOr<Stream> ConnectStream(const Endpoint& endpoint, Tls* tls, MonotonicTime deadline) {
  ASSIGN_OR_RETURN(Fd fd, ConnectTcp(endpoint, deadline));
  if (tls == nullptr) return Stream(std::move(fd));
  ASSIGN_OR_RETURN(std::unique_ptr<TlsSession> session, tls->Dial(fd.get(), endpoint.host));
  Stream stream(std::move(fd), std::move(session));
  while (true) {
    RETURN_IF_ERROR(stream.Handshake());
    if (stream.ready()) return stream;
    RETURN_IF_ERROR(PollFor(stream.fd(), stream.wants(), deadline));
  }
}

Status SendAll(Stream& stream, absl::string_view bytes, MonotonicTime deadline) {
  if (!stream.encrypted()) {
    const Status sent = SendAll(stream.fd(), bytes, deadline);
    // A part may be sent: what comes after it would be taken for its rest.
    if (!sent.ok()) shutdown(stream.fd().get(), SHUT_RDWR);
    return sent;
  }
  while (!bytes.empty()) {
    const iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
    const ssize_t n = stream.Write(&part, 1);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    Status status = errno == EAGAIN ? PollFor(stream.fd(), POLLOUT, deadline) : stream.Problem("sending");
    if (status.ok()) continue;
    stream.Break(status);
    return status;
  }
  return absl::OkStatus();
}

Status ReceiveAll(Stream& stream, void* data, size_t size, MonotonicTime deadline) {
  if (!stream.encrypted()) return ReceiveAll(stream.fd(), data, size, deadline);
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = stream.Read(to, size);
    if (n > 0) {
      to += n;
      size -= static_cast<size_t>(n);
    } else if (n == 0) {
      return absl::UnavailableError("the other end has closed");
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(PollFor(stream.fd(), POLLIN, deadline));
    } else {
      return stream.Problem("receiving");
    }
  }
  return absl::OkStatus();
}

Status AwaitInput(const Stream& stream, MonotonicTime deadline) {
  return stream.Pending() ? absl::OkStatus() : PollFor(stream.fd(), POLLIN, deadline);
}

}  // namespace mslua
