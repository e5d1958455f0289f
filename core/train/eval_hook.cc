#include "core/train/eval_hook.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/round_up.h"

namespace mslua {
namespace {

// Of the counters in a checkpoint.
constexpr char kDone[] = "eval.done", kCount[] = "eval.count", kValue[] = "eval.value.", kNewest[] = "eval.newest.";

}  // namespace

EvalHook::EvalHook(Progress* progress, Evaluator* evaluator, std::vector<MetricInfo> metrics, int64_t every_epochs,
                   int64_t every_steps)
    : progress_(progress),
      evaluator_(evaluator),
      metrics_(std::move(metrics)),
      every_epochs_(every_epochs),
      every_steps_(every_steps),
      planned_(every_steps, every_epochs * progress->steps_per_epoch, every_epochs > 0 || every_steps > 0) {
  progress_->planned.push_back(&planned_);
}

int64_t EvalHook::NextStep(const TrainState& s) {
  if (every_steps_ == 0) return INT64_MAX;
  return done_ == s.step ? (s.step / every_steps_ + 1) * every_steps_ : RoundUp(s.step, every_steps_);
}

Status EvalHook::AtStep(const TrainState& s) {
  return s.step == 0 ? absl::OkStatus() : Evaluate(s, s.epoch + 1, /*planned=*/true);
}

Status EvalHook::AtEpochEnd(const TrainState& s) {
  if (every_epochs_ == 0 || s.epoch % every_epochs_ != 0) return absl::OkStatus();
  return Evaluate(s, s.epoch, /*planned=*/true);
}

Status EvalHook::AtLastStep(const TrainState& s) {
  if (!at_end_ || s.step == 0 || (every_epochs_ == 0 && every_steps_ == 0)) return absl::OkStatus();
  return Evaluate(s, s.step_in_epoch == 0 ? s.epoch : s.epoch + 1, /*planned=*/false);
}

Status EvalHook::Evaluate(const TrainState& s, int64_t epoch, bool planned) {
  if (done_ != s.step) {
    done_ = s.step;
    RETURN_IF_ERROR(Measure(s, epoch).status());
  } else if (!counts_) {
    Tell(newest_);
  }
  if (planned && !counts_) Count();
  return absl::OkStatus();
}

void EvalHook::Count() {
  counts_ = true;
  counted_ = newest_;
  ++progress_->evaluations;
}

void EvalHook::Tell(const Numbers& values) {
  for (const auto& [name, value] : values) progress_->Set(name, value);
}

StatusOr<Numbers> EvalHook::Values() {
  ASSIGN_OR_RETURN(const std::vector<MetricSums> sums, evaluator_->Run());
  if (finish_) return finish_(sums, evaluator_->samples());
  Numbers values;
  for (const MetricSums& m : sums) values.emplace_back(m.name, m.sums[0] / static_cast<double>(evaluator_->samples()));
  return values;
}

StatusOr<std::string> EvalHook::Now(const TrainState& s, int64_t epoch) {
  ASSIGN_OR_RETURN(std::string line, Measure(s, epoch));
  Count();
  return line;
}

StatusOr<std::string> EvalHook::Measure(const TrainState& s, int64_t epoch) {
  const TimedWork timed(&planned_);
  ASSIGN_OR_RETURN(const Numbers values, Values());
  std::string line = absl::StrCat("eval: epoch ", epoch);
  Numbers record;
  std::vector<double> shown;
  for (size_t i = 0; i < values.size(); ++i) {
    const MetricInfo info = i < metrics_.size() ? metrics_[i] : MetricInfo{values[i].first, "mean"};
    const double v = info.kind == "perplexity" ? std::exp(values[i].second) : values[i].second;
    if (std::isnan(v))
      absl::StrAppend(&line, ", ", info.name, " NaN");
    else if (info.kind == "percent")
      absl::StrAppendFormat(&line, ", %s %.1f%%", info.name, 100 * v);
    else
      absl::StrAppendFormat(&line, ", %s %.4g", info.name, v);
    record.emplace_back(absl::StrCat("eval_", info.name), v);
    shown.push_back(v);
  }
  newest_ = record;
  counts_ = false;
  Tell(newest_);
  progress_->console->Line(line);
  if (progress_->metrics != nullptr) progress_->metrics->Write(s, record);
  if (on_evaluated_) on_evaluated_();
  if (Better(shown) && on_best_) on_best_();
  return line;
}

bool EvalHook::Better(const std::vector<double>& values) {
  if (values.empty()) return false;
  if (std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); })) return false;
  size_t by = 0;
  while (by < metrics_.size() && metrics_[by].kind != "percent") ++by;
  const bool more = by < values.size() && by < metrics_.size();
  const double value = more ? values[by] : -values[0];
  if (!std::isfinite(value) || (has_best_ && value <= best_)) return false;
  has_best_ = true;
  best_ = value;
  return true;
}

void EvalHook::SaveCounters(Counters* counters) const {
  (*counters)[kDone] = static_cast<double>(done_);
  if (has_best_) (*counters)["eval.best"] = best_;
  (*counters)[kCount] = static_cast<double>(progress_->evaluations);
  for (const auto& [name, value] : counted_) SaveNumber(kValue, name, value, counters);
  if (counts_) return;
  for (const auto& [name, value] : newest_) SaveNumber(kNewest, name, value, counters);
}

// An older version's checkpoint lacks the values: where they are asked for once more, they are found once more.
int64_t EvalHook::DoneIn(const Counters& counters) {
  return counters.count(kCount) == 0 ? 0 : static_cast<int64_t>(CounterOf(counters, kDone, 0));
}

void EvalHook::RestoreCounters(const Counters& counters) {
  done_ = DoneIn(counters);
  has_best_ = counters.count("eval.best") > 0;
  best_ = CounterOf(counters, "eval.best", 0);
  progress_->evaluations = static_cast<int64_t>(CounterOf(counters, kCount, 0));
  const auto counted = SavedNumbers(kValue, counters), newest = SavedNumbers(kNewest, counters);
  counted_.assign(counted.begin(), counted.end());
  counts_ = newest.empty();
  newest_ = counts_ ? counted_ : Numbers(newest.begin(), newest.end());
  Tell(counted_);
}

}  // namespace mslua
