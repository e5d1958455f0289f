#include "rendezvous/tls/session.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/printable.h"

namespace mslua {
namespace {

constexpr size_t kAhead = 64 << 10;    // bytes
constexpr size_t kMostVerdict = 1024;  // bytes
constexpr size_t kRecord = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr char kClosed[] = "the other end has closed";
constexpr char kKeyLabel[] = "EXPORTER-mslua";  // RFC 5705

}  // namespace

// The socket under a session. OpenSSL's own BIO would block on a blocking socket, and raise SIGPIPE.
struct TlsSocket {
  explicit TlsSocket(int socket) : fd(socket) {}
  const int fd;
  // What has come and OpenSSL has not asked for yet: it asks for the header of a record and then for the rest, and one
  // call of the system brings several records. OpenSSL's own read-ahead moves all of its buffer with each record.
  char ahead[kAhead];
  size_t begin = 0, end = 0;
  bool drained = false;  // the last call got all that there was: the next one waits for poll
  bool more = false;     // another record of the same frame follows: packets may wait for it

  ssize_t Receive(char* to, size_t size) {
    if (begin == end && drained) {
      drained = false;
      errno = EAGAIN;
      return -1;
    }
    if (begin == end && size >= kAhead) {
      const ssize_t n = recv(fd, to, size, MSG_DONTWAIT);
      drained = n > 0 && static_cast<size_t>(n) < size;
      return n;
    }
    if (begin == end) {
      const ssize_t n = recv(fd, ahead, kAhead, MSG_DONTWAIT);
      if (n <= 0) return n;
      begin = 0;
      end = static_cast<size_t>(n);
      drained = end < kAhead;
    }
    const size_t n = std::min(size, end - begin);
    memcpy(to, ahead + begin, n);
    begin += n;
    return static_cast<ssize_t>(n);
  }
};

namespace {

TlsSocket& SocketOf(BIO* bio) { return *static_cast<TlsSocket*>(BIO_get_data(bio)); }

int WriteSocket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = send(SocketOf(bio).fd, data, static_cast<size_t>(size),
                         MSG_NOSIGNAL | MSG_DONTWAIT | (SocketOf(bio).more ? MSG_MORE : 0));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int ReadSocket(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = SocketOf(bio).Receive(data, static_cast<size_t>(size));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(n);
}

long ControlSocket(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// SSL_get_error looks at the errors of the thread, and to clear them takes as long as a small record.
void ClearErrors() {
  if (ERR_peek_error() != 0) ERR_clear_error();
  errno = 0;
}

BIO* SocketBio(TlsSocket* socket) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write(made, &WriteSocket);
    BIO_meth_set_read(made, &ReadSocket);
    BIO_meth_set_ctrl(made, &ControlSocket);
    return made;
  }();
  BIO* const bio = BIO_new(method);
  BIO_set_data(bio, socket);
  BIO_set_init(bio, 1);
  return bio;
}

int SessionIndex() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

// What an alert of the other end says about this one.
std::string AlertText(int alert) {
  switch (alert) {
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "the other end refuses this end's certificate: it has expired";
    case SSL_AD_CERTIFICATE_REVOKED:
      return "the other end refuses this end's certificate: it has been revoked";
    case SSL_AD_UNKNOWN_CA:
      return "the other end refuses this end's certificate: it does not know the CA that signed it";
    case SSL_AD_BAD_CERTIFICATE:
      return "the other end refuses this end's certificate: it is not valid, or not yet";
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
      return "the other end refuses this end's certificate: it is not made for this use (extended key usage)";
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_DECRYPT_ERROR:
      return "the other end refuses this end's certificate";
    case SSL_AD_CERTIFICATE_REQUIRED:
      return "the other end asks for a certificate, and this end has shown none";
    case SSL_AD_PROTOCOL_VERSION:
      return "the other end refuses this end's version of TLS (min_version)";
    case SSL_AD_HANDSHAKE_FAILURE:
    case SSL_AD_INSUFFICIENT_SECURITY:
      return "the other end accepts none of this end's ciphers (cipher_list), or asks for a certificate";
    default:
      return absl::StrCat("the other end ended the handshake: ", SSL_alert_desc_string_long(alert));
  }
}

// What OpenSSL's error says, in plain words.
std::string ErrorText(unsigned long error) {
  const int reason = ERR_GET_REASON(error);
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) {
    return absl::StrCat("TLS failed: ",
                        ERR_reason_error_string(error) == nullptr ? "unknown error" : ERR_reason_error_string(error));
  }
  if (reason >= SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256) {
    return AlertText(reason - SSL_AD_REASON_OFFSET);
  }
  switch (reason) {
    case SSL_R_HTTP_REQUEST:
      return "it speaks HTTP; this port speaks TLS";
    case SSL_R_HTTPS_PROXY_REQUEST:
      return "it speaks to a proxy; this port speaks TLS";
    case SSL_R_WRONG_VERSION_NUMBER:
      return "the other end speaks no TLS: one end is started with TLS and the other without";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
      return "the other end's version of TLS is too low (min_version)";
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
      return "the two ends have no cipher in common (cipher_list)";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "it has shown no certificate; every process of the job needs one";
    default:
      return absl::StrCat("the handshake failed: ",
                          ERR_reason_error_string(error) == nullptr ? "unknown error" : ERR_reason_error_string(error));
  }
}

std::string Framed(const std::string& text) {
  const std::string shown = text.substr(0, kMostVerdict);
  return std::string({static_cast<char>(shown.size() >> 8), static_cast<char>(shown.size() & 255)}) + shown;
}

}  // namespace

TlsSession::TlsSession(ssl_st* ssl, int fd, Verdict verdict, std::function<void(TlsSession&)> on_end)
    : ssl_(ssl),
      socket_(new TlsSocket(fd)),
      verdict_(std::move(verdict)),
      on_end_(std::move(on_end)),
      accepts_(SSL_is_server(ssl) == 1) {
  BIO* const bio = SocketBio(socket_.get());
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_ex_data(ssl_, SessionIndex(), this);
}

TlsSession::~TlsSession() {
  if (on_end_) on_end_(*this);
  if (phase_ == Phase::kReady && broken_.ok() && !mid_write_) SSL_shutdown(ssl_);
  ERR_clear_error();
  SSL_free(ssl_);
}

TlsSession* TlsSession::Of(const ssl_st* ssl) { return static_cast<TlsSession*>(SSL_get_ex_data(ssl, SessionIndex())); }

bool TlsSession::HasPending() const { return SSL_has_pending(ssl_) == 1 || socket_->begin < socket_->end; }

Status TlsSession::Fail(Status why) {
  phase_ = Phase::kFailed;
  failed_ = why;
  return why;
}

Status TlsSession::Problem(int result) {
  const int system = errno;
  const int error = SSL_get_error(ssl_, result);
  const unsigned long cause = ERR_peek_error();
  ClearErrors();
  wants_ = error == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return absl::OkStatus();
  const bool ended = error == SSL_ERROR_ZERO_RETURN || (error == SSL_ERROR_SYSCALL && cause == 0 && system == 0) ||
                     (ERR_GET_LIB(cause) == ERR_LIB_SSL && ERR_GET_REASON(cause) == SSL_R_UNEXPECTED_EOF_WHILE_READING);
  if (ended) return absl::UnavailableError(kClosed);
  if (error == SSL_ERROR_SYSCALL) return absl::UnavailableError(strerror(system));
  const std::string text = verify_error_.empty() ? ErrorText(cause) : verify_error_;
  return absl::PermissionDeniedError(text);
}

Status TlsSession::Handshake() {
  while (phase_ != Phase::kReady) {
    if (phase_ == Phase::kFailed) return failed_;
    const Phase before = phase_;
    const Status status = phase_ == Phase::kHandshake        ? Shake()
                          : phase_ == Phase::kReceiveVerdict ? ReceiveVerdict()
                                                             : SendVerdict();
    if (!status.ok()) return Fail(status);
    if (phase_ == before) return absl::OkStatus();
  }
  return absl::OkStatus();
}

Status TlsSession::Shake() {
  ClearErrors();
  const int result = SSL_do_handshake(ssl_);
  if (result != 1) return Problem(result);
  // The chain has been verified by OpenSSL, or there is no session; this is a second look.
  X509* const peer = SSL_get0_peer_certificate(ssl_);
  if (peer == nullptr || SSL_get_verify_result(ssl_) != X509_V_OK) {
    return absl::PermissionDeniedError("the other end has shown no valid certificate");
  }
  mine_ = Framed(verdict_(*this));
  phase_ = accepts_ ? Phase::kSendVerdict : Phase::kReceiveVerdict;
  return absl::OkStatus();
}

// The accepting end speaks first, so that the other end hears of a refusal before it has sent anything.
Status TlsSession::SendVerdict() {
  ClearErrors();
  const int result = SSL_write(ssl_, mine_.data(), static_cast<int>(mine_.size()));
  if (result <= 0) return Problem(result);
  if (mine_.size() > 2) return absl::PermissionDeniedError(mine_.substr(2));
  if (accepts_) {
    phase_ = Phase::kReceiveVerdict;
    return absl::OkStatus();
  }
  phase_ = Phase::kReady;
  return absl::OkStatus();
}

Status TlsSession::ReceiveVerdict() {
  while (true) {
    const size_t length =
        theirs_.size() < 2 ? 0 : (static_cast<uint8_t>(theirs_[0]) << 8) + static_cast<uint8_t>(theirs_[1]);
    if (theirs_.size() >= 2 && length > kMostVerdict) return absl::PermissionDeniedError("it does not speak mslua");
    if (theirs_.size() >= 2 && theirs_.size() == length + 2) break;
    char bytes[kMostVerdict];
    const size_t missing = theirs_.size() < 2 ? 2 - theirs_.size() : length + 2 - theirs_.size();
    ClearErrors();
    const int result = SSL_read(ssl_, bytes, static_cast<int>(std::min(missing, sizeof bytes)));
    if (result <= 0) return Problem(result);
    theirs_.append(bytes, static_cast<size_t>(result));
  }
  if (theirs_.size() > 2) {
    return absl::PermissionDeniedError(absl::StrCat("the other end refuses this one: ", Printable(theirs_.substr(2))));
  }
  if (!accepts_) {
    phase_ = Phase::kSendLast;
    return absl::OkStatus();
  }
  phase_ = Phase::kReady;
  pending_ = HasPending();
  return absl::OkStatus();
}

ssize_t TlsSession::Outcome(int result) {
  const Status problem = Problem(result);
  if (problem.ok()) {
    errno = EAGAIN;
    return -1;
  }
  // What was refused in the handshake is, afterwards, a record that was changed on its way.
  if (!sends_last_word_) broken_ = absl::IsPermissionDenied(problem) ? absl::DataLossError(problem.message()) : problem;
  errno = EPROTO;
  return -1;
}

ssize_t TlsSession::Read(void* to, size_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ != Phase::kReady || !broken_.ok()) {
    errno = EPROTO;
    return -1;
  }
  ClearErrors();
  const int n = SSL_read(ssl_, to, static_cast<int>(std::min<size_t>(size, 1 << 30)));
  pending_ = n > 0 && HasPending();
  if (n > 0) return n;
  const ssize_t outcome = Outcome(n);
  return absl::IsUnavailable(broken_) && broken_.message() == kClosed ? 0 : outcome;
}

ssize_t TlsSession::Write(const iovec* parts, int n) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (phase_ != Phase::kReady || (!broken_.ok() && !sends_last_word_)) {
    errno = EPROTO;
    return -1;
  }
  // Several parts go out as one record, as far as it reaches: each record costs a call of the system.
  char record[kRecord];
  const char* data = n > 0 ? static_cast<const char*>(parts[0].iov_base) : nullptr;
  size_t size = n > 0 ? parts[0].iov_len : 0;
  if (n > 1 && size < kRecord) {
    size = 0;
    for (int i = 0; i < n && size < kRecord; ++i) {
      const size_t part = std::min(parts[i].iov_len, kRecord - size);
      memcpy(record + size, parts[i].iov_base, part);
      size += part;
    }
    data = record;
  }
  if (size == 0) return 0;
  size_t total = 0;
  for (int i = 0; i < n; ++i) total += parts[i].iov_len;
  socket_->more = total > kRecord;
  ClearErrors();
  const int written = SSL_write(ssl_, data, static_cast<int>(std::min(size, kRecord)));
  mid_write_ = false;
  if (written > 0) return written;
  const ssize_t outcome = Outcome(written);
  mid_write_ = errno == EAGAIN;
  return outcome;
}

void TlsSession::Break(const Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (broken_.ok()) broken_ = why;
}

void TlsSession::BreakAndWake(const Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sends_last_word_ = broken_.ok() && keeps_last_word_;
  if (broken_.ok()) broken_ = why;
  shutdown(socket_->fd, sends_last_word_ ? SHUT_RD : SHUT_RDWR);
}

void TlsSession::KeepLastWord() {
  const std::lock_guard<std::mutex> lock(mutex_);
  keeps_last_word_ = true;
}

Status TlsSession::broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return broken_;
}

std::string TlsSession::SharedKey() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string key(32, 0);
  if (SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(&key[0]), key.size(), kKeyLabel,
                                 sizeof kKeyLabel - 1, nullptr, 0, 0) != 1) {
    abort();
  }
  return key;
}

}  // namespace mslua
