#include "attach/server/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/authentication.h"
#include "core/base/clock.h"
#include "core/base/hash.h"

namespace mslua::endpoint {
namespace {

constexpr size_t kPacketBytes = (64 << 10) + kControlHeaderBytes;
constexpr size_t kPartBytes = 48 << 10;
constexpr size_t kMaxQueued = 8 << 20;
constexpr int kWaitingClients = 16;                         // not yet proven
constexpr absl::Duration kPause = absl::Milliseconds(100);  // without descriptors to accept with
constexpr size_t kNonceBytes = 32;

std::string NoMore(int clients) { return absl::StrCat("the job serves ", clients, " clients and no more: try later"); }

}  // namespace

std::string ProofOf(absl::string_view token, absl::string_view nonce) {
  // BLAKE2b takes no harm from a key in front of the message.
  return Blake2bHex(absl::StrCat("mslua attach ", token, " ", nonce));
}

StatusOr<std::unique_ptr<Server>> Server::Create(const ServerOptions& options, Handler* handler) {
  Fd listener;
  if (!options.path.empty()) {
    ASSIGN_OR_RETURN(listener, ListenUnix(options.path));
    chmod(options.path.c_str(), 0600);
    RETURN_IF_ERROR(SetNonBlocking(listener));
  }
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return std::unique_ptr<Server>(new Server(options, handler, std::move(listener), std::move(wake)));
}

void Server::Serve() {
  thread_ = std::thread([this] { Run(); });
}

void Server::Stop() {
  stop_ = true;
  Wake();
  if (!thread_.joinable()) return;
  thread_.join();
  // A connection that ends without it has been lost.
  for (const auto& client : clients_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (client->accepted) Queue(*client, {ControlMessage::Type::kLeave, {}});
    }
    Flush(*client);
  }
}

Server::~Server() {
  Stop();
  if (!options_.path.empty()) unlink(options_.path.c_str());
}

void Server::Wake() {
  const uint64_t one = 1;
  // The counter is never full.
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
}

void Server::Reply(uint64_t client, const std::string& id, const StatusOr<std::string>& answer) {
  const std::string all = answer.ok() ? *answer : std::string(answer.status().message());
  size_t at = 0;
  do {
    ControlMessage message{ControlMessage::Type::kReply, {{"id", id}, {"text", all.substr(at, kPartBytes)}}};
    at += kPartBytes;
    if (at >= all.size()) message.fields["end"] = answer.ok() ? "ok" : "error";
    QueueFor(client, message);
  } while (at < all.size());
  Wake();
}

void Server::Event(uint64_t client, absl::string_view text) {
  QueueFor(client, {ControlMessage::Type::kEvent, {{"text", std::string(text.substr(0, kPartBytes))}}});
  Wake();
}

void Server::QueueFor(uint64_t number, const ControlMessage& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& c : clients_) {
    if (c->number == number || (number == 0 && c->accepted)) Queue(*c, message);
  }
}

// With mutex_ held.
void Server::Queue(Client& client, const ControlMessage& message) {
  client.out.push_back(EncodeControl(message));
  client.out_bytes += client.out.back().size();
  if (client.out_bytes > kMaxQueued) client.broken = true;
}

void Server::Flush(Client& client) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!client.out.empty() && !client.broken) {
    const std::string& packet = client.out.front();
    if (send(client.socket.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno != EAGAIN && errno != EINTR) client.broken = true;
      return;
    }
    client.out_bytes -= packet.size();
    client.out.pop_front();
  }
}

void Server::Refuse(Client& client, const std::string& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Queue(client, {ControlMessage::Type::kRefuse, {{"why", why}}});
  }
  Flush(client);
  Break(client);
}

void Server::Break(Client& client) {
  const std::lock_guard<std::mutex> lock(mutex_);
  client.broken = true;
}

void Server::Accept() {
  StatusOr<Fd> socket = AcceptUnix(listener_, MonotonicNow());
  if (!socket.ok()) {
    // Without descriptors the listener stays readable: polling it would take all of a core.
    if (!absl::IsPermissionDenied(socket.status())) paused_until_ = MonotonicNow() + kPause;
    return;
  }
  auto client = std::make_unique<Client>();
  client->socket = *std::move(socket);
  client->proof_until = MonotonicNow() + options_.proof_limit;
  if (clients() >= options_.max_clients) return Refuse(*client, NoMore(options_.max_clients));
  if (static_cast<int>(clients_.size()) - clients() >= kWaitingClients)
    return Refuse(*client, "too many connections have not shown yet that they know the job's token: try later");
  const auto nonce = RandomBytes(kNonceBytes);
  if (!nonce.ok()) return Refuse(*client, std::string(nonce.status().message()));
  client->nonce = absl::BytesToHexString(*nonce);
  const std::lock_guard<std::mutex> lock(mutex_);
  client->number = next_client_++;
  Queue(*client, {ControlMessage::Type::kChallenge, {{"nonce", client->nonce}}});
  clients_.push_back(std::move(client));
}

void Server::Read(Client& client) {
  char buffer[kPacketBytes];
  const ssize_t size = recv(client.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT | MSG_TRUNC);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) return Break(client);
  if (static_cast<size_t>(size) > sizeof buffer) return Refuse(client, "a message is too long");
  const auto message = DecodeControl(absl::string_view(buffer, static_cast<size_t>(size)));
  if (!message.ok()) return Refuse(client, std::string(message.status().message()));
  Handle(client, *message);
}

void Server::Handle(Client& client, const ControlMessage& message) {
  if (!client.accepted) {
    if (message.type != ControlMessage::Type::kProof ||
        !SameSecret(message.Field("proof"), ProofOf(options_.token, client.nonce)))
      return Refuse(client, "the token is not this job's");
    if (clients() >= options_.max_clients) return Refuse(client, NoMore(options_.max_clients));
    ++accepted_;
    const std::lock_guard<std::mutex> lock(mutex_);
    client.accepted = true;
    Queue(client, {ControlMessage::Type::kAccept, options_.greeting});
    return;
  }
  if (message.type == ControlMessage::Type::kLeave) {
    client.leaving = true;
  } else if (message.type == ControlMessage::Type::kCommand) {
    handler_->OnCommand({client.number, PeerPid(client.socket), message.Field("id"), message.Field("line"),
                         message.Field("json") == "1"});
  } else {
    Refuse(client, "a client sends commands");
  }
}

void Server::DropGone() {
  for (size_t i = 0; i < clients_.size();) {
    Client& c = *clients_[i];
    const bool late = !c.accepted && MonotonicNow() > c.proof_until;
    std::unique_lock<std::mutex> lock(mutex_);
    const bool done = c.leaving && c.out.empty();
    if (!c.broken && !done && !late) {
      ++i;
      continue;
    }
    lock.unlock();
    if (c.accepted) {
      --accepted_;
      handler_->OnLeave(c.number, c.leaving);
    }
    lock.lock();
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// No client owes a proof and the handler has no deadline: the wait has no end.
int Server::WaitMilliseconds(MonotonicTime next) const {
  for (const auto& c : clients_) {
    if (!c->accepted) next = std::min(next, c->proof_until + absl::Milliseconds(1));
  }
  if (paused_until_ > MonotonicNow()) next = std::min(next, paused_until_);
  if (next == MonotonicTime::InfiniteFuture()) return -1;
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(next - MonotonicNow()) + 1, 0, 60000));
}

void Server::Run() {
  MonotonicTime next_wake = MonotonicTime::InfiniteFuture();
  std::vector<pollfd> fds;
  while (!stop_) {
    const int listener = paused_until_ > MonotonicNow() ? -1 : listener_.get();
    fds.assign({{listener, POLLIN, 0}, {wake_.get(), POLLIN, 0}, {handler_->ExtraFd(), POLLIN, 0}});
    for (const auto& c : clients_) {
      const std::lock_guard<std::mutex> lock(mutex_);
      fds.push_back({c->socket.get(), static_cast<short>(c->out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
    const size_t served = clients_.size();
    if (poll(fds.data(), fds.size(), WaitMilliseconds(next_wake)) < 0 && errno != EINTR) break;
    if ((fds[1].revents & POLLIN) != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof count);
    }
    if (stop_) break;
    if (fds[2].revents != 0) handler_->OnExtra();
    for (size_t i = 0; i < served; ++i) {
      if ((fds[i + 3].revents & (POLLIN | POLLHUP | POLLERR)) != 0) Read(*clients_[i]);
    }
    if ((fds[0].revents & POLLIN) != 0) Accept();
    for (const auto& c : clients_) Flush(*c);
    DropGone();
    next_wake = handler_->OnWake();
  }
  handler_->OnStop();
  for (const auto& c : clients_) Flush(*c);
}

}  // namespace mslua::endpoint
