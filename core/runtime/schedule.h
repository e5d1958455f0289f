// Which work of a step waits for which, where several lanes run beside each other: a device's streams for computing,
// for collectives and for copying inputs. A schedule is data: it is made from what every work reads and writes, and can
// be checked without a device.
//
// The works of a lane run in their order. Steps follow one another without a pause, so that a work may have to wait for
// one of an earlier step. Memory that turns (the two stages of an input) has a period of two steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"

namespace mslua {

enum class Lane : uint8_t { kCompute, kCommunication, kCopy };
inline constexpr int kLanes = 3;

// Bytes [begin, end) of a space: one allocation, or one tensor of the store.
struct MemoryRange {
  int32_t space = 0;
  int64_t begin = 0, end = 0;
  bool written = false;  // else read
  bool turns = false;    // steps of odd number have another piece of the same size
};

struct Work {
  Lane lane = Lane::kCompute;
  std::vector<MemoryRange> touched;
};

// Whether one of the two writes what the other one touches, in one step.
bool Conflict(const Work& a, const Work& b);

// The end of a work, of the same step or of one so many steps before; where there was no such step, of nothing.
struct WorkEnd {
  int32_t work = 0, steps_before = 0;
  friend bool operator==(const WorkEnd& a, const WorkEnd& b) {
    return a.work == b.work && a.steps_before == b.steps_before;
  }
};

// Of each work the ends on other lanes that it waits for.
using StepSchedule = std::vector<std::vector<WorkEnd>>;

// The steps before one that its works may wait for.
inline constexpr int kStepsBack = 2;

// The schedule of works that are given to their lanes in this order, step after step: each two that touch the same
// bytes, of which one writes, run one after the other. No wait in it can be left out.
StepSchedule MakeSchedule(absl::Span<const Work> works);

// Whether a schedule orders what must be ordered: the error names the first two works that it does not.
Status VerifySchedule(absl::Span<const Work> works, const StepSchedule& schedule);

}  // namespace mslua
