// A number of a training that is watched at the ends of epochs: whether it has improved (EarlyStopping,
// ReduceLROnPlateau).
#pragma once

#include <cmath>
#include <functional>
#include <string>

#include "core/train/progress.h"

namespace mslua {

class Monitor {
 public:
  // Of a number of this rank, the mean of the ranks that train together, each of which asks for it.
  using Mean = std::function<StatusOr<double>(double)>;

  // `name`: of Progress::found; `evaluated`: the training evaluates, which may be less often than it ends an epoch. An
  // improvement is a change by more than `min_delta`; `smaller`: downwards. NaN is no improvement. `owner`: the
  // callback that watches, for messages, and `key`: what its counters begin with. `mean`: empty where all ranks have
  // the same number.
  Monitor(Progress* progress, std::string name, bool evaluated, double min_delta, bool smaller, std::string owner,
          std::string key, Mean mean)
      : progress_(progress),
        name_(std::move(name)),
        evaluated_(evaluated),
        min_delta_(min_delta),
        sign_(smaller ? 1 : -1),
        owner_(std::move(owner)),
        key_(std::move(key)),
        mean_(std::move(mean)) {}

  enum class Verdict { kNothingNew, kBetter, kNotBetter };
  // Of an epoch that ends. kNothingNew: it had no evaluation. InvalidArgument: nothing of that name was measured.
  StatusOr<Verdict> Judge();
  // Whether there was any improvement, which the first number is.
  bool any() const { return any_; }
  // Whether smaller numbers are better.
  bool smaller() const { return sign_ > 0; }
  // The number that was judged last.
  double now() const { return now_; }
  const std::string& name() const { return name_; }

  void SaveCounters(Counters* counters) const;
  void RestoreCounters(const Counters& counters);

 private:
  Progress* const progress_;
  const std::string name_;
  const bool evaluated_;
  const double min_delta_;
  const double sign_;
  const std::string owner_, key_;
  const Mean mean_;
  double best_ = HUGE_VAL, now_ = 0;
  bool any_ = false;
  int64_t judged_ = 0;  // evaluations
};

}  // namespace mslua
