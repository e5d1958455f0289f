#include "core/train/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr double kPi = 3.14159265358979323846;

// From `a` to `b` along half a cosine as `t` goes from 0 to 1.
double Anneal(double a, double b, double t) { return b + (a - b) / 2 * (1 + std::cos(kPi * t)); }

double OneCycle(const Schedule& s, int64_t step) {
  const double first = s.value / s.div, last = first / s.final_div;
  const double up = s.pct * static_cast<double>(s.total) - 1, end = static_cast<double>(s.total) - 1;
  const double at = std::min(static_cast<double>(step), end);
  if (at <= up) return Anneal(first, s.value, up > 0 ? at / up : 1);
  return Anneal(s.value, last, (at - up) / (end - up));
}

}  // namespace

double Schedule::At(int64_t step) const {
  if (step < warmup_steps) {
    Schedule after = *this;
    after.warmup_steps = 0;
    const double to = after.At(0);
    return warmup_from + (to - warmup_from) * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  step -= warmup_steps;
  const double part = std::min(1.0, static_cast<double>(step) / static_cast<double>(total));
  switch (kind) {
    case Kind::kConstant:
      return value;
    case Kind::kStep:
      return value * std::pow(rate, static_cast<double>(step / period));
    case Kind::kPiecewise: {
      for (size_t i = 0; i < milestones.size(); ++i) {
        if (step < milestones[i]) return rates[i];
      }
      return rates.back();
    }
    case Kind::kCosine:
      return low + (value - low) * (1 + std::cos(kPi * part)) / 2;
    case Kind::kPolynomial:
      return (value - low) * std::pow(1 - part, power) + low;
    case Kind::kOneCycle:
      return OneCycle(*this, step);
    case Kind::kTable:
      return rates[std::min<size_t>(static_cast<size_t>(step), rates.size() - 1)];
  }
  return value;
}

Status Schedule::Check() const {
  const auto need = [](bool ok, absl::string_view what) {
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat("learning rate: ", what));
  };
  RETURN_IF_ERROR(need(std::isfinite(value) && value >= 0, absl::StrCat("must be a number >= 0, got ", value)));
  RETURN_IF_ERROR(need(total >= 1, absl::StrCat("total steps must be >= 1, got ", total)));
  RETURN_IF_ERROR(need(period >= 1, absl::StrCat("the step period must be >= 1, got ", period)));
  RETURN_IF_ERROR(need(warmup_steps >= 0, absl::StrCat("warm-up steps must be >= 0, got ", warmup_steps)));
  if (kind == Kind::kOneCycle)
    RETURN_IF_ERROR(need(pct > 0 && pct < 1 && div > 0 && final_div > 0,
                         "one_cycle needs 0 < pct_start < 1 and positive div factors"));
  if (kind == Kind::kTable) RETURN_IF_ERROR(need(!rates.empty(), "the list of rates is empty"));
  if (kind == Kind::kPiecewise) {
    RETURN_IF_ERROR(need(!rates.empty() && (rates.size() == milestones.size() || rates.size() == milestones.size() + 1),
                         absl::StrCat("piecewise needs a rate for each milestone, got ", rates.size(), " rates and ",
                                      milestones.size(), " milestones")));
    RETURN_IF_ERROR(need(std::is_sorted(milestones.begin(), milestones.end()), "milestones must ascend"));
  }
  for (double r : rates)
    RETURN_IF_ERROR(need(std::isfinite(r) && r >= 0, absl::StrCat("rates must be numbers >= 0, got ", r)));
  return absl::OkStatus();
}

StatusOr<Schedule::Kind> ParseScheduleKind(const std::string& name) {
  constexpr const char* kNames[] = {"constant", "step", "piecewise", "cosine", "polynomial", "one_cycle", "table"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<Schedule::Kind>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown schedule '", name, "'"));
}

}  // namespace mslua
