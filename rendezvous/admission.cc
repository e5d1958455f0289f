#include "rendezvous/admission.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
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
constexpr absl::Duration kLinger = absl::Seconds(1);
constexpr int kTlsShare = 4;  // a connection with TLS takes so much more memory
// The first record of a connection with TLS: its kind in a byte, a version in two, the bytes that follow in two.
constexpr char kTlsHandshake = 0x16;
constexpr int kTlsHeader = 5;

constexpr int kFirst = 4;  // bytes that tell what a peer without TLS speaks

bool IsHttp(absl::string_view first) {
  return first == "GET " || first == "POST" || first == "HEAD" || first == "PUT ";
}

sockaddr_storage OwnAddress(const Fd& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) address.ss_family = AF_UNSPEC;
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

// Whether the peer sends no more.
bool SendsNoMore(int fd) {
  pollfd entry = {fd, POLLRDHUP, 0};
  return poll(&entry, 1, 0) > 0;
}

// Whether the peer has ended within the record that begins with these bytes: nobody waits for an answer.
bool EndsWithin(absl::string_view header, int fd) {
  int there = 0;
  if (!SendsNoMore(fd) || ioctl(fd, FIONREAD, &there) != 0) return false;
  if (header.size() < kTlsHeader) return true;
  const auto byte = [&](int i) { return static_cast<unsigned char>(header[i]); };
  return there < kTlsHeader + byte(3) * 256 + byte(4);
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

std::string SourceOf(const Fd& socket, const sockaddr_storage& peer) {
  if (peer.ss_family == AF_UNIX) return absl::StrCat("user ", static_cast<int>(UserOfUnix(socket).uid));
  char host[INET6_ADDRSTRLEN] = "?";
  if (peer.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, host, sizeof host);
  } else if (peer.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, host, sizeof host);
  }
  return host;
}

std::string NameOfPeer(const Fd& socket, const sockaddr_storage& peer) {
  const std::string source = SourceOf(socket, peer);
  if (peer.ss_family == AF_UNIX) return absl::StrCat("process ", UserOfUnix(socket).pid, " of ", source);
  std::string name = ToString({source, static_cast<uint16_t>(PortOf(peer))});
  const int uid = UserOf(peer, OwnAddress(socket));
  if (uid >= 0) absl::StrAppend(&name, " (user ", uid, " of this host)");
  return name;
}

Admission::Admission(const Fd& listener, AdmissionOptions options)
    : listener_(listener),
      options_(std::move(options)),
      failures_left_(options_.failures_at_once),
      failures_at_(MonotonicNow()),
      refusals_(options_.log) {
  local_ = OwnAddress(listener_).ss_family == AF_UNIX;
  if (!local_) tls_ = options_.tls.get();
  SetNonBlocking(listener_).IgnoreError();
}

void Admission::Throttle(bool on) {
  if (throttled_ && !on) paused_until_ = MonotonicTime();
  throttled_ = on;
}

void Admission::CountFailures(int64_t n) {
  const MonotonicTime now = MonotonicNow();
  const double more = absl::ToDoubleSeconds(now - std::exchange(failures_at_, now)) * options_.failures_a_second;
  const double most = options_.failures_at_once;
  failures_left_ = std::max(std::min(most, failures_left_ + more) - static_cast<double>(n), -most);
  if (!throttled_ || failures_left_ >= 0) return;
  const absl::Duration until_none = absl::Seconds(-failures_left_ / options_.failures_a_second);
  paused_until_ = std::max(paused_until_, now + std::max(kPause, until_none));
}

void Admission::Poll(std::vector<pollfd>* entries) {
  polls_listener_ = MonotonicNow() >= paused_until_;
  // poll passes over descriptors below 0.
  entries->push_back({polls_listener_ ? listener_.get() : -1, POLLIN, 0});
  for (const auto& p : pending_) {
    const Stream& socket = p->who.socket;
    entries->push_back({socket.fd().get(), p->refused || socket.ready() ? short{POLLIN} : socket.wants(), 0});
  }
  polled_pending_ = pending_.size();
}

absl::Duration Admission::PollLimit() const {
  absl::Duration limit = absl::InfiniteDuration();
  const MonotonicTime now = MonotonicNow();
  if (!polls_listener_) limit = paused_until_ - now;
  for (const auto& p : pending_) limit = std::min(limit, p->ends - now);
  return std::max(limit, absl::ZeroDuration());
}

std::vector<Admission::Newcomer> Admission::Take(const pollfd* entries) {
  for (size_t i = 0; i < polled_pending_; ++i) {
    if (entries[1 + i].revents != 0) Step(*pending_[i]);
  }
  if (polls_listener_ && entries[0].revents != 0) {
    Accept();
    if (throttled_) paused_until_ = std::max(paused_until_, MonotonicNow() + options_.together);
  }
  const MonotonicTime now = MonotonicNow();
  for (auto& p : pending_) {
    if (p->closed || p->done || now < p->ends) continue;
    if (p->refused) p->closed = true;
    if (!p->closed) Close(*p, absl::StrCat("it did not say who it is within ", absl::FormatDuration(options_.limit)));
  }
  std::vector<Newcomer> known;
  for (auto& p : pending_) {
    if (p->done && !p->closed) known.push_back(std::move(p->who));
  }
  CountFailures(std::count_if(pending_.begin(), pending_.end(), [](const auto& p) { return p->closed; }));
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), [](const auto& p) { return p->closed || p->done; }),
                 pending_.end());
  return known;
}

void Admission::Accept() {
  const size_t before = pending_.size();
  size_t accepted = 0;
  for (int i = 0; i < kAtOnce; ++i) {
    sockaddr_storage peer = {};
    socklen_t size = sizeof peer;
    Fd socket(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
    if (!socket) break;
    ++accepted;
    auto p = std::make_unique<Pending>();
    p->ends = MonotonicNow() + options_.limit;
    p->who.peer = peer;
    p->who.source = SourceOf(socket, peer);
    p->who.socket = Stream(std::move(socket));
    if (local_ && UserOfUnix(p->who.socket.fd()).uid != geteuid()) {
      Close(*p, absl::StrCat("this job is user ", geteuid(), "'s"));
      continue;
    }
    if (!local_ && !SetTcpOptions(p->who.socket.fd()).ok()) continue;  // it has gone again
    p->known = local_;
    if (!local_ && tls_ == nullptr) p->acceptor = std::make_unique<Acceptor>(options_.secret, options_.refusal);
    Step(*p);  // its request to join may be there already
    if (p->closed) continue;
    pending_.push_back(std::move(p));
    MakeRoom(*pending_.back());
  }
  CountFailures(static_cast<int64_t>(accepted - (pending_.size() - before)));
}

void Admission::MakeRoom(const Pending& p) {
  const auto waits = [](const auto& q) { return !q->closed && !q->done; };
  const auto same = [&](const auto& q) { return waits(q) && q->who.source == p.who.source; };
  const int share = tls_ == nullptr ? 1 : kTlsShare;
  const bool of_one = !local_ && std::count_if(pending_.begin(), pending_.end(), same) > options_.most_of_one / share;
  const bool of_all = std::count_if(pending_.begin(), pending_.end(), waits) > options_.most / share;
  if (!of_one && !of_all) return;
  const auto oldest = of_one ? std::find_if(pending_.begin(), pending_.end(), same)
                             : std::find_if(pending_.begin(), pending_.end(), waits);
  Close(**oldest, "too many connections have not said who they are; this was the oldest");
}

void Admission::Step(Pending& p) {
  if (p.refused) {
    char bytes[4096];
    ssize_t n = 1;
    for (int i = 0; i < kAtOnce && n > 0; ++i) n = recv(p.who.socket.fd().get(), bytes, sizeof bytes, MSG_DONTWAIT);
    p.closed = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    return;
  }
  if (tls_ != nullptr && !p.who.socket.encrypted() && !BeginTls(p)) return;
  if (!p.who.socket.ready()) {
    const Status status = p.who.socket.Handshake();
    if (absl::IsUnavailable(status)) {
      p.closed = true;  // it went by itself: nothing to tell
      p.who.socket.Close();
    } else if (!status.ok()) {
      Refuse(p, std::string(status.message()));
    }
    if (p.closed || !p.who.socket.ready()) return;
    p.acceptor = std::make_unique<Acceptor>(p.who.socket.Bound(options_.secret), options_.refusal);
  }
  Read(p);
}

bool Admission::BeginTls(Pending& p) {
  char bytes[kTlsHeader];
  const int fd = p.who.socket.fd().get();
  const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const bool tls = n > 0 && bytes[0] == kTlsHandshake, few = n > 0 && n < kFirst && !tls;
  if (n <= 0 || (few && SendsNoMore(fd)) || (tls && EndsWithin({bytes, static_cast<size_t>(n)}, fd))) {
    p.closed = true;
    p.who.socket.Close();
    return false;
  }
  if (few) {
    // They alone do not make the socket readable again; the end of what the peer sends does, each time.
    const int least = kFirst;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
    return false;
  }
  if (!tls) {
    const absl::string_view first(bytes, kFirst);
    RefusePlainly(p, StartsControl(first)
                         ? "it speaks no TLS, and this job does: start it with the job's TLS configuration (--tls)"
                     : IsHttp(first) ? "it speaks HTTP; this is a port of mslua and speaks TLS"
                                     : "it speaks no TLS");
    return false;
  }
  auto session = tls_->Accept(fd);
  if (!session.ok()) {
    Close(p, std::string(session.status().message()));
    return false;
  }
  p.who.socket.Encrypt(std::move(*session));
  return true;
}

void Admission::Read(Pending& p) {
  // No message of an unknown peer is longer.
  char bytes[kControlHeaderBytes + (4 << 10) + 16];
  while (!p.closed && !p.done) {
    const ssize_t n = p.who.socket.Read(bytes, sizeof bytes - std::min(p.buffer.size(), sizeof bytes - 1));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      p.closed = true;  // it went by itself: nothing to tell
      p.who.socket.Close();
      return;
    }
    p.buffer.append(bytes, static_cast<size_t>(n));
    if (!p.known && p.buffer[0] == kTlsHandshake && !p.who.socket.encrypted()) {
      return RefusePlainly(p, "it speaks TLS, and this job does not: start the job with a TLS configuration (--tls)");
    }
    while (!p.closed && !p.done && p.buffer.size() >= kControlHeaderBytes) {
      const auto header = ControlTypeOf(p.buffer);
      const auto body = ControlBodyBytes(p.buffer);
      const bool may = header.ok() && body.ok() &&
                       (p.known ? *header == Type::kJoin || *header == Type::kHeartbeat
                                : *header == Type::kChallenge || *header == Type::kProof);
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
  if (p.known && message.type == Type::kHeartbeat) {
    // Who asks whether somebody answers here.
    std::string answer = EncodeSealed(message, p.who.seals.send);
    const iovec part = {&answer[0], answer.size()};
    p.who.socket.Write(&part, 1);
    p.closed = true;
    return;
  }
  if (p.known) {
    p.who.join = message;
    p.who.rest = std::move(p.buffer);
    p.done = true;
    return;
  }
  std::string answer = EncodeControl(p.acceptor->Answer(message));
  // The answers fit into the empty buffer of a socket.
  const iovec part = {&answer[0], answer.size()};
  const bool sent = p.who.socket.Write(&part, 1) == static_cast<ssize_t>(answer.size());
  if (!p.acceptor->refused().empty()) return Close(p, p.acceptor->refused());
  if (!sent) return Close(p, "it does not read what it is sent");
  if (!p.acceptor->accepted()) return;
  p.known = true;
  p.who.use = p.acceptor->use();
  p.who.seals = p.acceptor->seals();
  if (options_.joins) return;
  p.who.rest = std::move(p.buffer);
  p.done = true;
}

void Admission::Close(Pending& p, const std::string& why) {
  refusals_.Refused(
      p.who.source, [&p] { return NameOfPeer(p.who.socket.fd(), p.who.peer); }, why);
  p.closed = true;
  p.who.socket.Close();
}

void Admission::RefusePlainly(Pending& p, const std::string& why) {
  const std::string text = EncodeControl({Type::kRefuse, {{"reason", why}}});
  // It fits into the empty buffer of a socket; who does not get it sees that the connection is closed.
  if (send(p.who.socket.fd().get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) p.closed = true;
  Refuse(p, why);
}

void Admission::Refuse(Pending& p, const std::string& why) {
  refusals_.Refused(
      p.who.source, [&p] { return NameOfPeer(p.who.socket.fd(), p.who.peer); }, why);
  // A socket that closes with something unread takes with it what the peer has not read yet.
  p.refused = true;
  p.ends = std::min(p.ends, MonotonicNow() + kLinger);
  shutdown(p.who.socket.fd().get(), SHUT_WR);
  Step(p);
}

}  // namespace mslua
