// Connections to ranks on other hosts: one TCP socket a pair. A thread that waits for frames moves them in and out
// itself; while nobody waits, a thread does.
#pragma once

#include <poll.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "collectives/net/frame.h"
#include "core/base/clock.h"
#include "rendezvous/stream.h"

namespace mslua {

// A frame that came or is awaited. Fields but `into` are read under Links' mutex, or after `complete` was seen there.
struct Arrival {
  Frame frame;
  std::string source;
  std::unique_ptr<char[]> heap;  // the payload, when it came before it was expected
  char* into = nullptr;          // where it goes
  int64_t capacity = 0;          // bytes there
  uint64_t received = 0;
  uint32_t crc = 0;  // of what has been received of the payload
  bool begun = false, complete = false;
};

class Links {
 public:
  // Takes over connections to ranks. `spin`: who waits may keep a core busy for a moment.
  Links(std::map<int, Stream> sockets, bool spin);
  ~Links();

  // Queues a frame for `peer`; the payload stays untouched until `*unsent` (null: not counted), which this
  // increases, is 0 again.
  void Send(int peer, const Frame& frame, const void* payload, int* unsent);
  // Tells `peer` that the group is over, and why; goes out even after Drop.
  void SendAbort(int peer, Frame frame, absl::string_view reason);
  // The frame of this sequence and stage of `group` from `peer`, now or later. A payload of at most `capacity` bytes
  // goes to `into`, a longer or early one to its heap.
  using Key = std::tuple<int, uint64_t, uint64_t, uint8_t>;
  std::shared_ptr<Arrival> Expect(int peer, uint64_t group, uint64_t sequence, uint8_t stage, void* into,
                                  int64_t capacity);
  // Forgets the group: nothing of it is read from or written to its callers' memory after this.
  void Drop(uint64_t group);

  // Waits until `done(&awaited)`, an abort of the group, the loss of a rank that it put into `awaited`, or `limit`.
  // OK says that it is done; aborts give the status that they carry. `done` is called under the mutex.
  Status Wait(uint64_t group, absl::Duration limit, const std::function<bool(std::vector<int>*)>& done);
  // done() under the mutex.
  bool Check(const std::function<bool()>& done);

 private:
  struct Outgoing {
    std::string head;  // header, source, and the reason of an abort
    const char* payload;
    uint64_t bytes, done = 0;
    uint64_t group;
    int* unsent;
  };
  struct Peer {
    Stream socket;
    std::deque<Outgoing> queue;
    std::string head;  // bytes of the header and source that have come
    std::shared_ptr<Arrival> reading;
    int least = 1;     // bytes that must have come before the thread is woken
    std::string lost;  // why the connection is over
  };

  void Run();
  int Poll(absl::Duration limit);
  // Waits for the sockets, at most `limit`, and moves what they let through. For the thread that finds !driven_.
  void Drive(std::unique_lock<std::mutex>& lock, absl::Duration limit);
  // Whether a wait is over, and how.
  bool Ended(uint64_t group, const std::function<bool(std::vector<int>*)>& done, Status* status) const;
  void Read(int rank, Peer& peer);
  // Once so many bytes have come, and not before; the rest of a payload, or (0) the next frame.
  void WakeFor(Peer& peer, size_t bytes);
  void Write(Peer& peer);
  void Lose(Peer& peer, absl::string_view why);
  // The whole header has come.
  Status Begin(int rank, Peer& peer);
  void Finish(Peer& peer);
  void Wake();

  const bool spin_;
  Fd wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Peer> peers_;
  std::map<Key, std::shared_ptr<Arrival>> arrivals_;
  std::map<uint64_t, Status> aborts_;
  bool stop_ = false;
  bool driven_ = false;  // the thread or a waiter is in Drive
  int waiters_ = 0;
  MonotonicTime waited_ = MonotonicTime::InfinitePast();  // when the last wait ended
  std::vector<pollfd> entries_;                           // of who drives
  std::vector<int> entry_ranks_;
  std::condition_variable parked_;  // for the thread, while it has nothing to do
  bool news_ = false;               // a frame has gone or come, or a peer is lost, since `changed_` was notified
  std::thread thread_;
};

}  // namespace mslua
