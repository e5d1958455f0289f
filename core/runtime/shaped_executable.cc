#include "core/runtime/shaped_executable.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// The inputs of a plan by their position.
std::vector<std::string> InputsOf(const Executable& plan) {
  std::vector<std::string> inputs;
  for (const int32_t i : plan.graph().Inputs()) {
    const Attrs& attrs = plan.graph().nodes[static_cast<size_t>(i)].attrs;
    inputs.push_back(absl::StrCat(attrs.Str("kind"), " ", attrs.Str("name")));
  }
  return inputs;
}

// What plans of the same step have in common.
std::vector<std::string> CommonOf(const Executable& plan) {
  std::vector<std::string> common = InputsOf(plan);
  std::sort(common.begin(), common.end());
  for (const GraphOutput& o : plan.graph().outputs)
    common.push_back(absl::StrCat("output ", o.name, o.updates.empty() ? "" : " updates ", o.updates));
  return common;
}

}  // namespace

StatusOr<std::unique_ptr<ShapedExecutable>> ShapedExecutable::Create(std::vector<std::unique_ptr<Executable>> plans,
                                                                     std::vector<double> shares) {
  if (plans.empty() || plans.size() != shares.size())
    return absl::InternalError(absl::StrCat(plans.size(), " plans and ", shares.size(), " shares"));
  for (size_t s = 1; s < plans.size(); ++s) {
    const std::vector<std::string> first = CommonOf(*plans[0]), other = CommonOf(*plans[s]);
    const auto differ = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    if (differ.first == first.end() && differ.second == other.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("batches of shape ", s + 1, " of ", plans.size(), " have \"",
                     differ.second == other.end() ? "" : *differ.second, "\" where the first have \"",
                     differ.first == first.end() ? "" : *differ.first,
                     "\": the network should use and train the same parameters for every shape of a batch"));
  }
  auto shaped = std::make_unique<ShapedExecutable>();
  PlanReport& report = shaped->report_;
  report = plans[0]->report();
  for (size_t s = 1; s < plans.size(); ++s) {
    const PlanReport& other = plans[s]->report();
    report.workspace_bytes = std::max(report.workspace_bytes, other.workspace_bytes);
    report.shared_bytes = std::max(report.shared_bytes, other.shared_bytes);
    report.compile_seconds += other.compile_seconds;
  }
  const std::vector<std::string> first = InputsOf(*plans[0]);
  for (const auto& plan : plans) {
    const std::vector<std::string> own = InputsOf(*plan);
    std::vector<int>& positions = shaped->positions_.emplace_back();
    for (const std::string& input : first)
      positions.push_back(static_cast<int>(std::find(own.begin(), own.end(), input) - own.begin()));
  }
  shaped->plans_ = std::move(plans);
  shaped->shares_ = std::move(shares);
  shaped->now_ = shaped->plans_[0].get();
  return StatusOr<std::unique_ptr<ShapedExecutable>>(std::move(shaped));
}

Status ShapedExecutable::BindInput(absl::string_view name, const void* data) {
  for (const auto& plan : plans_) RETURN_IF_ERROR(plan->BindInput(name, data));
  return absl::OkStatus();
}

void ShapedExecutable::BindInputAt(int position, const void* data) {
  for (size_t s = 0; s < plans_.size(); ++s) plans_[s]->BindInputAt(positions_[s][static_cast<size_t>(position)], data);
}

Status ShapedExecutable::SetScalar(absl::string_view name, double value) {
  for (const auto& plan : plans_) RETURN_IF_ERROR(plan->SetScalar(name, value));
  return absl::OkStatus();
}

void ShapedExecutable::SetScalarAt(int position, double value) {
  for (size_t s = 0; s < plans_.size(); ++s)
    plans_[s]->SetScalarAt(positions_[s][static_cast<size_t>(position)], value);
}

void ShapedExecutable::SetTimeline(std::vector<int64_t>* timeline) {
  for (const auto& plan : plans_) plan->SetTimeline(timeline);
}

ShapedExecutable* ShapedOf(Executable* executable) { return dynamic_cast<ShapedExecutable*>(executable); }
const ShapedExecutable* ShapedOf(const Executable* executable) {
  return dynamic_cast<const ShapedExecutable*>(executable);
}

}  // namespace mslua
