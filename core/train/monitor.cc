#include "core/train/monitor.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/train/trainer.h"

namespace mslua {
namespace {
constexpr char kBest[] = "best";  // a counter
}

StatusOr<Monitor::Verdict> Monitor::Judge() {
  if (evaluated_ && absl::StartsWith(name_, "eval_") && progress_->evaluations == judged_) return Verdict::kNothingNew;
  judged_ = progress_->evaluations;
  const double* v = progress_->Find(name_);
  if (v == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(owner_, ": nothing called '", name_, "' was measured"));
  now_ = *v;
  if (mean_) {
    ASSIGN_OR_RETURN(now_, mean_(now_));
  }
  if (!(sign_ * now_ < best_ - min_delta_)) return Verdict::kNotBetter;
  best_ = sign_ * now_;
  any_ = true;
  return Verdict::kBetter;
}

void Monitor::SaveCounters(Counters* counters) const {
  if (any_) SaveNumber(key_ + ".", kBest, best_, counters);
  (*counters)[key_ + ".judged"] = static_cast<double>(judged_);
}

void Monitor::RestoreCounters(const Counters& counters) {
  const std::map<std::string, double> saved = SavedNumbers(key_ + ".", counters);
  const auto best = saved.find(kBest);
  any_ = best != saved.end();
  best_ = any_ ? best->second : HUGE_VAL;
  judged_ = static_cast<int64_t>(CounterOf(counters, key_ + ".judged", 0));
}

}  // namespace mslua
