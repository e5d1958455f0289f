#include "core/schedule/declare/schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"

namespace mslua {
namespace {

Status CheckField(const ScheduleDef& def, const ScheduleField& field, const Schedule& schedule) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(def.name, ": ", field.name, what));
  };
  if (field.kind == ScheduleField::Kind::kRate) {
    if (schedule.settings.inner == nullptr) return wrong(" is missing");
    return schedule.settings.inner->Check();
  }
  if (!schedule.settings.Has(field.name)) return field.optional ? absl::OkStatus() : wrong(" is missing");
  const std::vector<double>& list = schedule.settings.List(field.name);
  const bool whole = field.kind == ScheduleField::Kind::kInteger || field.kind == ScheduleField::Kind::kIntegers;
  for (double v : list) {
    if (!std::isfinite(v) || (whole && (v != std::floor(v) || std::abs(v) > 9e15)))
      return wrong(absl::StrCat(" is ", v, ", expected ", whole ? "an integer" : "a finite number"));
    const std::string problem = LimitProblem(field.limits, v);
    if (!problem.empty()) return wrong(absl::StrCat(" is ", v, ", ", problem));
  }
  return absl::OkStatus();
}

}  // namespace

ScheduleDef& ScheduleDef::Steps() {
  Integer("total_step", AtLeast(1), "steps of the training");
  return Integer("step_per_epoch", 1, AtLeast(1), "steps of an epoch; with 1 the rate changes at every step");
}

int64_t EpochOf(const ScheduleSettings& s, int64_t step) {
  const int64_t epoch = s.Int("step_per_epoch");
  return epoch == 1 ? step : std::min(step, s.Int("total_step") - 1) / epoch;
}

double ShareOfEpochs(const ScheduleSettings& s, int64_t step) {
  const int64_t epoch = s.Int("step_per_epoch");
  const int64_t all = s.Has("decay_epoch") ? s.Int("decay_epoch") : CeilDiv(s.Int("total_step"), epoch);
  return std::min(1.0, static_cast<double>(EpochOf(s, step)) / static_cast<double>(all));
}

Status Schedule::Check() const {
  if (def == nullptr) {
    if (std::isfinite(constant) && constant >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("learning rate: must be a number >= 0, got ", constant));
  }
  for (const ScheduleField& field : def->fields) RETURN_IF_ERROR(CheckField(*def, field, *this));
  return def->check ? def->check(settings) : absl::OkStatus();
}

}  // namespace mslua
