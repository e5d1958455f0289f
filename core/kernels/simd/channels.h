// Kernels for batch normalisation: reductions to channels, and maps with a coefficient a channel, over Highway.
#pragma once

#include "core/op/op_def.h"

namespace mslua {

// A tensor seen as [outer, channels, inner]: "NCHW" has the channels at axis 1, "NHWC" last (inner is 1).
struct Channels {
  int64_t outer = 1, channels = 1, inner = 1;

  static Channels Of(const Attrs& attrs, const Shape& shape);
  int64_t elements() const { return outer * channels * inner; }
  // Elements of each channel.
  int64_t count() const { return outer * inner; }
};

// f32 and bf16 with f32 statistics; the operators' operands (core/ops/batch_norm.cc).
FastKernel HighwayBatchNormStats();
FastKernel HighwayBatchNormApply();
// `relu`: through a relu that follows.
FastKernel HighwayBatchNormGradStats(bool relu);
FastKernel HighwayBatchNormGradApply(bool relu);

}  // namespace mslua
