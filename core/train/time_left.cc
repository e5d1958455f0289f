#include "core/train/time_left.h"

#include <algorithm>
#include <numeric>

namespace mslua {

int64_t PlannedWork::Left(int64_t done, int64_t last) const {
  if (last <= done) return 0;
  const auto multiples = [&](int64_t of) { return of > 0 ? last / of - done / of : 0; };
  int64_t times = multiples(every_) + multiples(epoch_every_);
  if (every_ > 0 && epoch_every_ > 0) times -= multiples(std::lcm(every_, epoch_every_));  // both: once
  const auto falls_on = [&](int64_t of) { return of > 0 && last % of == 0; };
  return times + (at_end_ && !falls_on(every_) && !falls_on(epoch_every_) ? 1 : 0);
}

void StepPace::Add(double seconds, int64_t steps) {
  constexpr size_t kTimes = 50;
  constexpr double kLong = 3;
  last_.push_back(seconds / static_cast<double>(steps));
  if (last_.size() > kTimes) last_.pop_front();
  steps_ += steps;
  const double expected = static_cast<double>(steps) * typical_;
  if (typical_ <= 0 || seconds <= kLong * expected) return;
  if (between_++ == 0) first_between_ = steps_;
  last_between_ = steps_;
  between_seconds_ += seconds - expected;
}

double StepPace::Median() const {
  if (last_.empty()) return 0;
  std::vector<double> sorted(last_.begin(), last_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double StepPace::SecondsOf(int64_t steps) const {
  double seconds = static_cast<double>(steps) * Median();
  if (between_ < 2) return seconds;
  // A burst in the beginning is no distance: it has to last until now.
  const double distance =
      std::max(static_cast<double>(last_between_ - first_between_) / static_cast<double>(between_ - 1),
               static_cast<double>(steps_) / static_cast<double>(between_ + 1));
  // From the last time on, so that the number falls where it comes again, not before.
  const auto times = static_cast<int64_t>(static_cast<double>(steps_ + steps - last_between_) / distance);
  return seconds + static_cast<double>(times) * between_seconds_ / static_cast<double>(between_);
}

double TimeLeft(const StepPace& pace, const std::vector<const PlannedWork*>& planned, int64_t done, int64_t last) {
  double seconds = pace.SecondsOf(std::max<int64_t>(last - done, 0));
  for (const PlannedWork* work : planned)
    seconds += static_cast<double>(work->Left(done, last)) * work->SecondsOf(pace.Median());
  return seconds;
}

}  // namespace mslua
