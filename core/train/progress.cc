#include "core/train/progress.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace mslua {
namespace {

// Checkpoints have no infinite counters and no NaN: of these the sign, or 0.
constexpr char kFound[] = "found.", kFoundSign[] = "found_sign.", kEvaluations[] = "found_in";

}  // namespace

void Progress::Set(const std::string& name, double value) {
  for (auto& f : found) {
    if (f.first == name) {
      f.second = value;
      return;
    }
  }
  found.emplace_back(name, value);
}

const double* Progress::Find(const std::string& name) const {
  for (const auto& f : found) {
    if (f.first == name) return &f.second;
  }
  return nullptr;
}

void Progress::SaveCounters(Counters* counters) const {
  for (const auto& [name, value] : found) {
    if (std::isfinite(value))
      (*counters)[kFound + name] = value;
    else
      (*counters)[kFoundSign + name] = std::isnan(value) ? 0 : value > 0 ? 1 : -1;
  }
  if (evaluations > 0) (*counters)[kEvaluations] = static_cast<double>(evaluations);
}

void Progress::RestoreCounters(const Counters& counters) {
  for (const auto& [name, value] : counters) {
    absl::string_view number = name;
    if (absl::ConsumePrefix(&number, kFound))
      Set(std::string(number), value);
    else if (absl::ConsumePrefix(&number, kFoundSign))
      Set(std::string(number), value == 0 ? std::nan("") : value * std::numeric_limits<double>::infinity());
  }
  evaluations = static_cast<int64_t>(CounterOf(counters, kEvaluations, 0));
}

void Progress::Stop() {
  stopped = true;
  trainer->RequestStop();
}

}  // namespace mslua
