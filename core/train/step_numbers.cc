#include "core/train/step_numbers.h"

#include <sys/resource.h>

#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace mslua {

namespace {

// The outputs' numbers: one, several where several steps make one, or none.
std::vector<int> NormOutputs(const Executable& step) {
  std::vector<int> found;
  const auto& outputs = step.graph().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == "grad_norm" || absl::StartsWith(outputs[i].name, "grad_norm."))
      found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace

bool HasGradNorm(const Executable& step) { return !NormOutputs(step).empty(); }

double GradNormOf(const Executable& step) {
  const std::vector<int> outputs = NormOutputs(step);
  if (outputs.empty()) return std::nan("");
  const auto number = [&](int output) {
    const TensorView norm = step.Output(output);
    return norm.type.dtype == DType::kF64 ? *norm.as<double>() : static_cast<double>(*norm.as<float>());
  };
  if (outputs.size() == 1) return number(outputs[0]);
  double squares = 0;
  for (const int output : outputs) squares += number(output) * number(output);
  return std::sqrt(squares);
}

int64_t PeakMemory() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

std::vector<std::pair<std::string, int>> FindStepLosses(const Executable& step) {
  std::vector<std::pair<std::string, int>> found;
  const auto& outputs = step.graph().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    absl::string_view name = outputs[i].name;
    if (outputs[i].updates.empty() && absl::ConsumePrefix(&name, "loss."))
      found.emplace_back(std::string(name), static_cast<int>(i));
  }
  return found;
}

std::vector<std::pair<std::string, double>> StepLossesOf(const Executable& step) {
  std::vector<std::pair<std::string, double>> losses;
  for (const auto& [name, output] : FindStepLosses(step)) {
    const TensorView loss = step.Output(output);
    losses.emplace_back(name, LoadAsDouble(loss.type.dtype, loss.data, 0));
  }
  return losses;
}

}  // namespace mslua
