#include "core/train/step_numbers.h"

#include <sys/resource.h>

#include <cmath>

namespace mslua {

namespace {

// The output's number; -1: there is none.
int NormOutput(const Executable& step) {
  const auto& outputs = step.graph().outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == "grad_norm") return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

bool HasGradNorm(const Executable& step) { return NormOutput(step) >= 0; }

double GradNormOf(const Executable& step) {
  const int output = NormOutput(step);
  if (output < 0) return std::nan("");
  const TensorView norm = step.Output(output);
  return norm.type.dtype == DType::kF64 ? *norm.as<double>() : static_cast<double>(*norm.as<float>());
}

int64_t PeakMemory() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

}  // namespace mslua
