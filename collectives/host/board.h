// The board of a group on one host: shared memory where its ranks announce calls, count steps and hand over small
// payloads. Layout and waiting only; what the words mean together is SharedMemoryCommunicator's business.
//
// Every word has one writer, its rank, except `bell`, `sleepers` and `aborted`. A writer publishes with a sequentially
// consistent store and wakes sleepers by futex when there are any; readers acquire. Nothing here is a lock, so a rank
// may die at any instruction and leave the others able to notice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace mslua {

// Where a buffer of a rank lies: byte `offset` of its shared segment number `segment`.
struct Address {
  static constexpr int8_t kPrivate = -1;   // peers cannot reach it
  static constexpr int8_t kReadable = -2;  // at `offset` in the rank's own memory, which peers may copy (Host::Fetch)
  int8_t segment = kPrivate;
  uint64_t offset = 0;
};

// What a rank announces about a call. `posted` is the call's number plus one, written last.
struct Announcement {
  std::atomic<uint32_t> posted;
  uint32_t epoch;
  uint32_t done;  // calls that the rank had finished when it announced this one
  uint8_t kind, reduce, dtype;
  int8_t in_segment, out_segment;
  uint8_t source_size;
  int16_t peer;
  int64_t count;
  uint64_t in_offset, out_offset;
};
static_assert(sizeof(Announcement) == 48, "a payload of 16 bytes shares the first cache line");
static_assert(std::atomic<uint32_t>::is_always_lock_free, "words are shared between processes");

struct Slot {
  static constexpr int kInlineBytes = 4096;
  Announcement call;
  char payload[kInlineBytes];
  char source[96];
};

// Per rank. Words that peers poll and words that only sleepers touch lie apart.
struct RankWords {
  alignas(64) std::atomic<uint32_t> stepped;   // steps finished, over all calls
  std::atomic<uint32_t> done;                  // calls finished
  std::atomic<uint32_t> closed;                // the rank has left the group
  alignas(64) std::atomic<uint32_t> sleepers;  // peers asleep on a word of this rank
  alignas(64) std::atomic<uint32_t> bell;      // rung by peers when a message to or from this rank has moved
  std::atomic<uint32_t> listening;             // this rank sleeps on its bell
};

// One direction between two ranks. A message goes over in pieces through two halves of a window; when the sender's
// buffer can be reached, as one piece without the window.
struct Channel {
  alignas(64) std::atomic<uint32_t> offered;  // messages announced by the sender; `offer` describes the last
  std::atomic<uint32_t> sent;                 // pieces written
  alignas(64) std::atomic<uint32_t> taken;    // pieces read
  std::atomic<uint32_t> refused;              // the receiver wants something else, which `want` describes
  struct Message {
    int64_t count;
    uint64_t offset;
    int32_t tag;
    uint8_t dtype;
    int8_t segment;
    uint8_t source_size;
    char source[96];
  } offer, want;
};

class Board {
 public:
  static constexpr int kSlots = 8;

  // Bytes of a board of `ranks` with staging windows of `window` bytes a rank and `piece` bytes a channel half.
  static int64_t Bytes(int ranks, int64_t window, int64_t piece);
  // Over zeroed, 64-byte aligned memory of that size, which `memory` keeps alive.
  Board(std::shared_ptr<void> memory, int ranks, int64_t window, int64_t piece);

  Slot& slot(int rank, uint32_t call) const;
  RankWords& words(int rank) const;
  Channel& channel(int from, int to) const;
  // The staging window of `rank`; 64-byte aligned.
  char* window(int rank) const;
  int64_t window_bytes() const { return window_; }
  // Half `half` (0 or 1) of the window of a channel.
  char* piece(int from, int to, int half) const;
  int64_t piece_bytes() const { return piece_; }

  // The first rank to call this gives the group's reason, not OK; later calls do nothing.
  void Abort(const Status& why) const;
  // OK while nobody has aborted. What differs between ranks (FailedPrecondition) is given as it was; of other
  // failures ranks learn (Aborted) that another one stopped.
  Status Aborted() const;

 private:
  struct AbortNote {
    std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 written
    uint32_t code;
    char reason[1016];
  };

  std::shared_ptr<void> memory_;
  char* base_;
  int ranks_;
  int64_t window_, piece_;
};

// True when counter `value` has come to `target`; counters wrap around.
inline bool Reached(uint32_t value, uint32_t target) { return static_cast<int32_t>(value - target) >= 0; }

// Sleeps while `word` is `value`, at most `limit`; may return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t value, absl::Duration limit);
void FutexWakeAll(std::atomic<uint32_t>& word);

// Stores and wakes the threads that sleep on `word`, as `sleepers` tells.
inline void Publish(std::atomic<uint32_t>& word, uint32_t value, const std::atomic<uint32_t>& sleepers) {
  word.store(value, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(word);
}

// Cores that this process may use, at least 1.
int UsableCores();

}  // namespace mslua
