// The control endpoint of a rank: a unix socket that clients of the same user attach to. One thread, which sleeps until
// somebody comes.
//
// A client connects, is sent a nonce (kChallenge), proves that it knows the job's token (kProof) and is accepted
// (kAccept) or refused (kRefuse); then it sends lines (kCommand) and gets the answers (kReply, in parts of at most 48
// KiB, the last with "end": ok or error) and events (kEvent).
// Every packet is one ControlMessage.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/control.h"
#include "rendezvous/socket.h"

namespace mslua::endpoint {

// What a client answers a challenge with.
std::string ProofOf(absl::string_view token, absl::string_view nonce);

struct ServerOptions {
  std::string path;                             // of the socket; empty: nobody connects, the thread serves the handler
  std::string token;                            // of the job
  std::map<std::string, std::string> greeting;  // what accepted clients are told: "job", "rank", ...
  int max_clients = 32;
  absl::Duration proof_limit = absl::Seconds(5);
};

class Server {
 public:
  // What a client sent.
  struct Line {
    uint64_t client;
    int pid;         // of the client's process
    std::string id;  // by which the client knows the answer
    std::string text;
    bool json;  // the answer is wanted as JSON, where there is one
  };

  // All are called on the server's thread.
  class Handler {
   public:
    virtual ~Handler() = default;
    // To be answered by Reply, now or later.
    virtual void OnCommand(const Line& line) = 0;
    // The client has gone; on_purpose: it said that it would.
    virtual void OnLeave(uint64_t client, bool on_purpose) = 0;
    // After everything else, after Wake, and at the time that the last call gave: which may be when to be called next.
    virtual MonotonicTime OnWake() { return MonotonicTime::InfiniteFuture(); }
    // Before the last answers are sent.
    virtual void OnStop() {}
    // One more descriptor to look after (-1: none), and what to do when it is readable.
    virtual int ExtraFd() { return -1; }
    virtual void OnExtra() {}
  };

  // Listens; the socket is readable and writable by its owner alone. The handler outlives the server.
  static StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options, Handler* handler);
  // Starts the thread.
  void Serve();
  // Ends the thread, which until then calls the handler, and that Reply.
  void Stop();
  // Closes all connections and removes the socket.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Any thread. A client that is gone is passed over; one that lets 8 MiB wait is cut off.
  void Reply(uint64_t client, const std::string& id, const StatusOr<std::string>& answer);
  void Event(uint64_t client, absl::string_view text);  // client 0: all of them
  void Wake();
  // Accepted clients.
  int clients() const { return accepted_.load(std::memory_order_relaxed); }

 private:
  struct Client {
    uint64_t number = 0;
    Fd socket;
    std::string nonce;
    bool accepted = false, leaving = false, broken = false;
    MonotonicTime proof_until;
    std::deque<std::string> out;
    size_t out_bytes = 0;
  };

  Server(const ServerOptions& options, Handler* handler, Fd listener, Fd wake)
      : options_(options), handler_(handler), listener_(std::move(listener)), wake_(std::move(wake)) {}
  void Run();
  void Accept();
  void Read(Client& client);
  void Handle(Client& client, const ControlMessage& message);
  void Refuse(Client& client, const std::string& why);
  void Break(Client& client);
  void Queue(Client& client, const ControlMessage& message);
  void QueueFor(uint64_t client, const ControlMessage& message);
  void Flush(Client& client);
  void DropGone();
  int WaitMilliseconds(MonotonicTime next) const;

  const ServerOptions options_;
  Handler* const handler_;
  const Fd listener_;
  const Fd wake_;  // an eventfd
  uint64_t next_client_ = 1;
  MonotonicTime paused_until_;  // nothing is accepted before
  std::atomic<int> accepted_{0};
  std::atomic<bool> stop_{false};
  // Guards `out`, `broken` and changes of the list and of `accepted`, which the server's thread alone makes.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::thread thread_;
};

}  // namespace mslua::endpoint
