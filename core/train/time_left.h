// How long the rest of a training takes: its steps, the evaluations and saves that are planned, and what else comes
// between steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

namespace mslua {

// Work that comes between steps by a plan, such as evaluations.
class PlannedWork {
 public:
  // After each `every` steps, after each `epoch_every` steps (whole epochs), and after the last step. 0: not by this
  // rule.
  PlannedWork(int64_t every, int64_t epoch_every, bool at_end)
      : every_(every), epoch_every_(epoch_every), at_end_(at_end) {}

  // It was done once more.
  void Add(double seconds) {
    ++times_;
    seconds_ += seconds;
  }
  // It takes as long as so many steps. Holds until it is done for the first time.
  void Expect(double steps) { expected_steps_ = steps; }
  void SkipLast() { at_end_ = false; }

  // Of all times so far in this process.
  double seconds() const { return seconds_; }
  // How often it comes after step `done`, where it was done, until step `last`.
  int64_t Left(int64_t done, int64_t last) const;
  // Of one time, where a step takes `step_seconds`.
  double SecondsOf(double step_seconds) const {
    return times_ > 0 ? seconds_ / static_cast<double>(times_) : expected_steps_ * step_seconds;
  }

 private:
  const int64_t every_, epoch_every_;
  bool at_end_;
  int64_t times_ = 0;
  double seconds_ = 0, expected_steps_ = 0;
};

// Adds the seconds from its construction to its end.
class TimedWork {
 public:
  explicit TimedWork(PlannedWork* work) : work_(work), begun_(std::chrono::steady_clock::now()) {}
  ~TimedWork() { work_->Add(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count()); }
  TimedWork(const TimedWork&) = delete;
  TimedWork& operator=(const TimedWork&) = delete;

 private:
  PlannedWork* const work_;
  const std::chrono::steady_clock::time_point begun_;
};

// How long steps take, by those of late.
class StepPace {
 public:
  // So many steps in a row took so long together, with what they waited for, without planned work.
  void Add(double seconds, int64_t steps = 1);
  // Seconds of a step, the median of the last 50 times; 0: not known yet.
  double Median() const;
  // Of so many further steps. What takes three times as long as a step has come between, such as a function of the
  // user after each epoch: it is expected again once it has come twice, in the same distance.
  double SecondsOf(int64_t steps) const;
  // Takes the median of now for what a step takes. To be called now and then.
  void Settle() { typical_ = Median(); }
  bool empty() const { return last_.empty(); }

 private:
  std::deque<double> last_;
  double typical_ = 0;
  int64_t steps_ = 0;
  // What has come between steps: how often, after which step, the seconds of all.
  int64_t between_ = 0, first_between_ = 0, last_between_ = 0;
  double between_seconds_ = 0;
};

// Seconds from step `done` to the end of step `last` and of what is planned after it.
double TimeLeft(const StepPace& pace, const std::vector<const PlannedWork*>& planned, int64_t done, int64_t last);

}  // namespace mslua
