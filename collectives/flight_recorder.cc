#include "collectives/flight_recorder.h"

#include <time.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "collectives/call.h"

namespace mslua {
namespace {

// The coarse clock costs 5 ns; a collective of a few bytes takes 100.
int64_t CoarseNanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

}  // namespace

uint64_t FlightRecorder::Begin(const Call& call, uint64_t sequence, int group_size) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& e = entries_[next_ % kEntries];
  e.sequence = sequence;
  e.began_ns = CoarseNanoseconds();
  e.count = call.count;
  e.peer = call.peer;
  e.tag = call.tag;
  e.group_size = group_size;
  e.kind = static_cast<uint8_t>(call.kind);
  e.reduce = static_cast<uint8_t>(call.reduce);
  e.dtype = static_cast<uint8_t>(call.dtype);
  e.state.store(State::kWaiting, std::memory_order_relaxed);
  e.source_size = static_cast<uint8_t>(call.source.copy(e.source, sizeof e.source));
  return next_++;
}

void FlightRecorder::End(uint64_t ticket, bool ok) {
  if (next_ - ticket > kEntries) return;  // overwritten meanwhile
  Entry& e = entries_[ticket % kEntries];
  e.ended_ns.store(CoarseNanoseconds(), std::memory_order_relaxed);
  e.state.store(ok ? State::kDone : State::kFailed, std::memory_order_release);
}

std::vector<RecordedCall> FlightRecorder::Last(int most) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = CoarseNanoseconds();
  std::vector<RecordedCall> calls;
  const auto n = static_cast<uint64_t>(std::clamp(most, 0, kEntries));
  for (uint64_t i = next_ > n ? next_ - n : 0; i < next_; ++i) {
    const Entry& e = entries_[i % kEntries];
    Call call;
    call.kind = static_cast<Collective>(e.kind);
    call.reduce = static_cast<ReduceOp>(e.reduce);
    call.dtype = static_cast<DType>(e.dtype);
    call.count = e.count;
    call.peer = e.peer;
    call.tag = e.tag;
    call.source = absl::string_view(e.source, e.source_size);
    const State state = e.state.load(std::memory_order_acquire);
    const int64_t end = state == State::kWaiting ? now : e.ended_ns.load(std::memory_order_relaxed);
    calls.push_back({e.sequence, e.group_size, Describe(call), e.began_ns * 1e-9, (end - e.began_ns) * 1e-9,
                     state == State::kWaiting ? "waiting"
                     : state == State::kDone  ? "done"
                                              : "failed"});
  }
  return calls;
}

std::string FlightRecorder::Dump() const {
  std::string text;
  for (const RecordedCall& c : Last(kEntries)) {
    absl::StrAppendFormat(&text, "#%d of %d ranks  %s  began %.3f s  %s\n", c.sequence, c.group_size, c.what, c.began_s,
                          c.state == "done" ? absl::StrFormat("done in %.3f s", c.seconds) : c.state);
  }
  return text;
}

}  // namespace mslua
