#include "rendezvous/admission.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/printable.h"

namespace mslua {
namespace {

using Type = ControlMessage::Type;

constexpr int kAtOnce = 64;  // connections accepted before those that are there are read
constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr absl::Duration kWhile = absl::Seconds(10);
constexpr int kLinesInAWhile = 10;
constexpr size_t kMostTold = 1000;

sockaddr_storage AddressOf(const Fd& socket, bool peer) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  const int error = peer ? getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address), &size)
                         : getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  if (error != 0) address.ss_family = AF_UNSPEC;
  return address;
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// As /proc/net/tcp and tcp6 write it: words of the address in the byte order of the host, then the port.
std::string KernelName(const sockaddr_storage& address) {
  uint32_t words[4] = {};
  const int n = address.ss_family == AF_INET6 ? 4 : 1;
  if (n == 4) {
    memcpy(words, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, sizeof words);
  } else {
    words[0] = reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr;
  }
  std::string name;
  for (int i = 0; i < n; ++i) absl::StrAppend(&name, absl::Hex(words[i], absl::kZeroPad8));
  absl::StrAppend(&name, ":", absl::Hex(PortOf(address), absl::kZeroPad4));
  for (char& c : name) c = absl::ascii_toupper(c);
  return name;
}

// The user whose connection of this host that is; -1: it is another host's, or closed.
int UserOf(const sockaddr_storage& from, const sockaddr_storage& to) {
  std::ifstream table(from.ss_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp");
  const std::string pair = absl::StrCat(" ", KernelName(from), " ", KernelName(to), " ");
  std::string line;
  while (std::getline(table, line)) {
    if (line.find(pair) == std::string::npos) continue;
    // sl local remote state queues timer retransmits uid ...; 06 is TIME_WAIT, which is nobody's
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int uid = -1;
    if (words.size() > 7 && words[3] != "06" && absl::SimpleAtoi(words[7], &uid)) return uid;
  }
  return -1;
}

ucred UserOfUnix(const Fd& socket) {
  ucred user = {0, static_cast<uid_t>(-1), 0};
  socklen_t size = sizeof user;
  getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &user, &size);
  return user;
}

}  // namespace

void RefusalLog::Refused(const std::string& source, const std::function<std::string()>& name, const std::string& why) {
  if (!log_) return;
  const MonotonicTime now = MonotonicNow();
  if (now - since_ > kWhile) {
    if (untold_ > 0) log_(absl::StrCat("refused ", untold_, " further connections"));
    since_ = now;
    lines_ = 0;
    untold_ = 0;
  }
  if (told_.size() >= kMostTold) told_.clear();
  if (lines_ >= kLinesInAWhile || !told_.insert(absl::StrCat(source, " ", why)).second) {
    ++untold_;
    return;
  }
  ++lines_;
  log_(absl::StrCat("refused a connection of ", name(), ": ", PrintableMessage(why)));
}

std::string SourceOf(const Fd& socket) {
  const sockaddr_storage peer = AddressOf(socket, true);
  if (peer.ss_family == AF_UNIX) return absl::StrCat("user ", static_cast<int>(UserOfUnix(socket).uid));
  char host[INET6_ADDRSTRLEN] = "?";
  if (peer.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, host, sizeof host);
  } else if (peer.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, host, sizeof host);
  }
  return host;
}

std::string NameOfPeer(const Fd& socket) {
  const sockaddr_storage peer = AddressOf(socket, true);
  if (peer.ss_family == AF_UNIX) return absl::StrCat("process ", UserOfUnix(socket).pid, " of ", SourceOf(socket));
  std::string name = ToString({SourceOf(socket), static_cast<uint16_t>(PortOf(peer))});
  const int uid = UserOf(peer, AddressOf(socket, false));
  if (uid >= 0) absl::StrAppend(&name, " (user ", uid, " of this host)");
  return name;
}

Admission::Admission(const Fd& listener, AdmissionOptions options)
    : listener_(listener), options_(std::move(options)), refusals_(options_.log) {
  local_ = AddressOf(listener_, false).ss_family == AF_UNIX;
  SetNonBlocking(listener_).IgnoreError();
}

void Admission::Poll(std::vector<pollfd>* entries) {
  polls_listener_ = MonotonicNow() >= paused_until_;
  // poll passes over descriptors below 0.
  entries->push_back({polls_listener_ ? listener_.get() : -1, POLLIN, 0});
  for (const auto& p : pending_) entries->push_back({p->who.socket.get(), POLLIN, 0});
  polled_pending_ = pending_.size();
}

absl::Duration Admission::PollLimit() const {
  absl::Duration limit = absl::InfiniteDuration();
  const MonotonicTime now = MonotonicNow();
  if (!polls_listener_) limit = paused_until_ - now;
  if (!pending_.empty()) limit = std::min(limit, pending_.front()->since + options_.limit - now);
  return std::max(limit, absl::ZeroDuration());
}

std::vector<Admission::Newcomer> Admission::Take(const pollfd* entries) {
  for (size_t i = 0; i < polled_pending_; ++i) {
    if (entries[1 + i].revents != 0) Read(*pending_[i]);
  }
  if (polls_listener_ && entries[0].revents != 0) Accept();
  const MonotonicTime now = MonotonicNow();
  for (auto& p : pending_) {
    if (p->closed || p->done || now - p->since < options_.limit) continue;
    Close(*p, absl::StrCat("it did not say who it is within ", absl::FormatDuration(options_.limit)));
  }
  std::vector<Newcomer> known;
  for (auto& p : pending_) {
    if (p->done && !p->closed) known.push_back(std::move(p->who));
  }
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), [](const auto& p) { return p->closed || p->done; }),
                 pending_.end());
  return known;
}

void Admission::Accept() {
  for (int i = 0; i < kAtOnce; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      // The listener stays readable: polling it would take all of a core.
      const std::string what = absl::StrCat("no descriptor is left for it (", strerror(errno), ")");
      refusals_.Refused(
          "", [] { return "an unknown process"; }, what);
      paused_until_ = MonotonicNow() + kPause;
      const auto oldest = std::find_if(pending_.begin(), pending_.end(), [](const auto& p) { return !p->closed; });
      if (oldest != pending_.end() && !(*oldest)->done) Close(**oldest, what);
      return;
    }
    if (!socket) return;
    auto p = std::unique_ptr<Pending>(new Pending{{}, MonotonicNow(), "", {options_.secret, options_.refusal}});
    p->who.source = SourceOf(socket);
    p->who.socket = std::move(socket);
    if (local_ && UserOfUnix(p->who.socket).uid != geteuid()) {
      Close(*p, absl::StrCat("this job is user ", geteuid(), "'s"));
      continue;
    }
    if (!local_ && !SetTcpOptions(p->who.socket).ok()) continue;  // it has gone again
    p->known = local_;
    Read(*p);  // who means to join has spoken
    if (p->closed) continue;
    pending_.push_back(std::move(p));
    const auto waits = [](const auto& q) { return !q->closed && !q->done; };
    const std::string source = pending_.back()->who.source;
    const auto same = [&](const auto& q) { return waits(q) && q->who.source == source; };
    const bool of_one = !local_ && std::count_if(pending_.begin(), pending_.end(), same) > options_.most_of_one;
    const bool of_all = std::count_if(pending_.begin(), pending_.end(), waits) > options_.most;
    if (!of_one && !of_all) continue;
    const auto oldest = of_one ? std::find_if(pending_.begin(), pending_.end(), same)
                               : std::find_if(pending_.begin(), pending_.end(), waits);
    Close(**oldest, "too many connections have not said who they are; this was the oldest");
  }
}

void Admission::Read(Pending& p) {
  // No message of an unknown peer is longer.
  char bytes[kControlHeaderBytes + (4 << 10) + 16];
  while (!p.closed && !p.done) {
    const ssize_t n = recv(p.who.socket.get(), bytes, sizeof bytes - std::min(p.buffer.size(), sizeof bytes - 1), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      p.closed = true;  // it went by itself: nothing to tell
      p.who.socket.Close();
      return;
    }
    p.buffer.append(bytes, static_cast<size_t>(n));
    while (!p.closed && !p.done && p.buffer.size() >= kControlHeaderBytes) {
      const auto header = ControlTypeOf(p.buffer);
      const auto body = ControlBodyBytes(p.buffer);
      const bool may = header.ok() && body.ok() &&
                       (p.known ? *header == Type::kJoin : *header == Type::kChallenge || *header == Type::kProof);
      if (!may) {
        Close(p, header.ok() && body.ok() ? "it sent a message that only a member may send"
                                          : std::string((header.ok() ? body.status() : header.status()).message()));
        break;
      }
      const size_t size = kControlHeaderBytes + *body, tag = p.who.seals.receive.tag_bytes();
      if (p.buffer.size() < size + tag) break;
      const absl::string_view all(p.buffer);
      Status status;
      if (tag > 0) status = p.who.seals.receive.Check(all.substr(0, size), all.substr(size, tag));
      const auto message = status.ok() ? DecodeControl(all.substr(0, size)) : StatusOr<ControlMessage>(status);
      if (!message.ok()) {
        Close(p, std::string(message.status().message()));
        break;
      }
      p.buffer.erase(0, size + tag);
      Handle(p, *message);
    }
  }
}

void Admission::Handle(Pending& p, const ControlMessage& message) {
  if (p.known) {
    p.who.join = message;
    p.who.rest = std::move(p.buffer);
    p.done = true;
    return;
  }
  const std::string answer = EncodeControl(p.acceptor.Answer(message));
  // The answers fit into the empty buffer of a socket.
  const bool sent = send(p.who.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                    static_cast<ssize_t>(answer.size());
  if (!p.acceptor.refused().empty()) return Close(p, p.acceptor.refused());
  if (!sent) return Close(p, "it does not read what it is sent");
  if (!p.acceptor.accepted()) return;
  p.known = true;
  p.who.use = p.acceptor.use();
  p.who.seals = p.acceptor.seals();
  if (options_.joins) return;
  p.who.rest = std::move(p.buffer);
  p.done = true;
}

void Admission::Close(Pending& p, const std::string& why) {
  refusals_.Refused(
      p.who.source, [&p] { return NameOfPeer(p.who.socket); }, why);
  p.closed = true;
  p.who.socket.Close();
}

}  // namespace mslua
