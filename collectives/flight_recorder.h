// Flight recorder: the last calls of a rank, always on, for error messages and `diag`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace mslua {

struct Call;

// A call of one rank, as others may compare it: calls of one group with one number are one collective.
struct RecordedCall {
  uint64_t sequence = 0;
  int group_size = 0;
  std::string what;        // "all_reduce sum f32[128] at train.lua:88"
  double began_s = 0;      // on the monotonic clock (4 ms steps)
  double seconds = 0;      // that it took, or waits for by now
  std::string state = "";  // "waiting", "done" or "failed"
};

// Begin and End come from the thread that makes the calls; Last and Dump may come from any thread.
class FlightRecorder {
 public:
  static constexpr int kEntries = 128;

  // Remembers the beginning of `call`, the `sequence`-th of a group of `group_size` ranks, and returns its ticket.
  uint64_t Begin(const Call& call, uint64_t sequence, int group_size);
  void End(uint64_t ticket, bool ok);

  // The last calls, at most `most`, oldest first.
  std::vector<RecordedCall> Last(int most) const;
  // The last calls, oldest first, one a line:
  //   "#94 of 4 ranks  all_reduce sum f32[128] at train.lua:88  began 1204.512 s  waiting"
  // with the time on the monotonic clock (4 ms steps) and "waiting", "done in 0.012 s" or "failed".
  std::string Dump() const;

 private:
  enum class State : uint8_t { kWaiting, kDone, kFailed };
  // Guarded by mutex_ but for what End writes.
  struct Entry {
    uint64_t sequence;
    int64_t began_ns;
    std::atomic<int64_t> ended_ns;
    std::atomic<State> state;
    int64_t count;
    int32_t peer, tag, group_size;
    uint8_t kind, reduce, dtype;
    uint8_t source_size;
    char source[95];
  };

  mutable std::mutex mutex_;
  std::array<Entry, kEntries> entries_;
  uint64_t next_ = 0;
};

}  // namespace mslua
