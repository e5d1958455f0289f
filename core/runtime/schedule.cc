#include "core/runtime/schedule.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// From this many steps on, a step's waits are those of the one before it.
constexpr int kSteps = 2 * kStepsBack + 1;

// Of each lane, how many of its works have ended.
using Clock = std::array<int64_t, kLanes>;

bool Covers(const Clock& a, int lane, int64_t count) { return a[lane] >= count; }

bool Overlap(const MemoryRange& a, int step_a, const MemoryRange& b, int step_b) {
  if (a.space != b.space || a.end <= b.begin || b.end <= a.begin || (!a.written && !b.written)) return false;
  return !a.turns || !b.turns || step_a % 2 == step_b % 2;
}

bool InConflict(const Work& a, int step_a, const Work& b, int step_b) {
  for (const MemoryRange& x : a.touched) {
    for (const MemoryRange& y : b.touched) {
      if (Overlap(x, step_a, y, step_b)) return true;
    }
  }
  return false;
}

// The works of kSteps steps in the order in which lanes get them: number step * works + work.
class Unrolled {
 public:
  explicit Unrolled(absl::Span<const Work> works) : works_(works), count_(static_cast<int32_t>(works.size())) {
    for (int32_t w = 0; w < count_; ++w) of_lane_[LaneOf(w)].push_back(w);
    position_.resize(works.size());
    for (const auto& lane : of_lane_) {
      for (size_t i = 0; i < lane.size(); ++i) position_[lane[i]] = static_cast<int64_t>(i) + 1;
    }
  }
  int32_t count() const { return count_; }
  int LaneOf(int32_t work) const { return static_cast<int>(works_[work].lane); }
  // How many works of its lane have ended with it.
  int64_t CountOf(int step, int32_t work) const {
    return step * static_cast<int64_t>(of_lane_[LaneOf(work)].size()) + position_[work];
  }
  // The last work of `lane` before (step, work) that conflicts with it; work -1: none.
  std::pair<int, int32_t> LastConflict(int lane, int step, int32_t work) const {
    const std::vector<int32_t>& list = of_lane_[lane];
    for (int s = step; s >= 0 && s >= step - kStepsBack; --s) {
      const auto from = s == step ? std::lower_bound(list.begin(), list.end(), work) : list.end();
      for (auto at = from; at != list.begin();) {
        --at;
        if (InConflict(works_[*at], s, works_[work], step)) return {s, *at};
      }
    }
    return {0, -1};
  }
  const std::vector<int32_t>& of_lane(int lane) const { return of_lane_[lane]; }

 private:
  absl::Span<const Work> works_;
  int32_t count_;
  std::array<std::vector<int32_t>, kLanes> of_lane_;
  std::vector<int64_t> position_;  // of a work in its lane, from 1
};

// The clocks with which works end, step after step, as a schedule has them.
class Clocks {
 public:
  explicit Clocks(const Unrolled& works) : works_(works), ends_(static_cast<size_t>(works.count()) * kSteps) {}

  // With what a work begins that waits for `waits`: what its lane has done, and what those have.
  Clock Begin(int step, int32_t work, absl::Span<const WorkEnd> waits) const {
    Clock clock = lanes_[works_.LaneOf(work)];
    for (const WorkEnd& w : waits) {
      if (step >= w.steps_before) Join(EndOf(step - w.steps_before, w.work), &clock);
    }
    return clock;
  }
  void End(int step, int32_t work, Clock clock) {
    const int lane = works_.LaneOf(work);
    clock[lane] = works_.CountOf(step, work);
    ends_[static_cast<size_t>(step) * works_.count() + work] = clock;
    lanes_[lane] = clock;
  }
  const Clock& EndOf(int step, int32_t work) const { return ends_[static_cast<size_t>(step) * works_.count() + work]; }

 private:
  static void Join(const Clock& from, Clock* to) {
    for (int l = 0; l < kLanes; ++l) (*to)[l] = std::max((*to)[l], from[l]);
  }
  const Unrolled& works_;
  std::vector<Clock> ends_;
  std::array<Clock, kLanes> lanes_ = {};
};

}  // namespace

bool Conflict(const Work& a, const Work& b) { return InConflict(a, 0, b, 0); }

StepSchedule MakeSchedule(absl::Span<const Work> works) {
  const Unrolled unrolled(works);
  Clocks clocks(unrolled);
  StepSchedule schedule(works.size());
  for (int step = 0; step < kSteps; ++step) {
    for (int32_t w = 0; w < unrolled.count(); ++w) {
      std::vector<WorkEnd> waits;
      for (int lane = 0; lane < kLanes; ++lane) {
        if (lane == unrolled.LaneOf(w)) continue;
        const auto [at, other] = unrolled.LastConflict(lane, step, w);
        if (other >= 0 && !Covers(clocks.Begin(step, w, {}), lane, unrolled.CountOf(at, other)))
          waits.push_back({other, step - at});
      }
      // One that another one implies is left out.
      for (size_t i = 0; i < waits.size();) {
        std::vector<WorkEnd> others = waits;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
        const WorkEnd& wait = waits[i];
        const bool implied = Covers(clocks.Begin(step, w, others), unrolled.LaneOf(wait.work),
                                    unrolled.CountOf(step - wait.steps_before, wait.work));
        if (implied)
          waits = std::move(others);
        else
          ++i;
      }
      clocks.End(step, w, clocks.Begin(step, w, waits));
      schedule[w] = std::move(waits);
    }
  }
  return schedule;
}

Status VerifySchedule(absl::Span<const Work> works, const StepSchedule& schedule) {
  if (schedule.size() != works.size()) return absl::InternalError("schedule: another number of works");
  const Unrolled unrolled(works);
  Clocks clocks(unrolled);
  for (int step = 0; step < kSteps; ++step) {
    for (int32_t w = 0; w < unrolled.count(); ++w) {
      for (const WorkEnd& wait : schedule[w]) {
        if (wait.work < 0 || wait.work >= unrolled.count() || wait.steps_before < 0 || wait.steps_before > kStepsBack ||
            (wait.steps_before == 0 && wait.work >= w))
          return absl::InternalError(absl::StrCat("schedule: work ", w, " waits for work ", wait.work, " of ",
                                                  wait.steps_before, " steps before, which does not come before it"));
      }
      const Clock begin = clocks.Begin(step, w, schedule[w]);
      for (int lane = 0; lane < kLanes; ++lane) {
        if (lane == unrolled.LaneOf(w)) continue;
        const auto [at, other] = unrolled.LastConflict(lane, step, w);
        if (other < 0 || Covers(begin, lane, unrolled.CountOf(at, other))) continue;
        return absl::InternalError(absl::StrCat("schedule: work ", w, " may run before work ", other, " of ", step - at,
                                                " steps before has ended, which touches the same memory"));
      }
      clocks.End(step, w, begin);
    }
  }
  return absl::OkStatus();
}

}  // namespace mslua
