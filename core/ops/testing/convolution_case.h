// Convolutions of every kind of window, for tests of their kernels.
#pragma once

#include <string>
#include <vector>

#include "core/ops/testing/sample_run.h"

namespace mslua::testing {

struct ConvolutionCase {
  int64_t n, c, h, w, o;                                   // images [n, c, h, w], o channels of the result
  std::vector<int64_t> kernel, stride, padding, dilation;  // padding: top, bottom, left, right
  int64_t group = 1;
};

std::string ToString(const ConvolutionCase& c);

inline constexpr const char* kConvolutions[] = {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"};
// A call of one of these. `format`: "NCHW" or "NHWC".
Call ConvolutionCall(const std::string& name, const ConvolutionCase& c, DType type, const std::string& format);
// Its result by the reference kernel, in f64.
StatusOr<std::vector<double>> ConvolveByReference(const Call& call, std::vector<double> a, std::vector<double> b);

}  // namespace mslua::testing
