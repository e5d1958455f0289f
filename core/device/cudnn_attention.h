// Attention by cuDNN: its flash kernels, which keep no score matrix.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/device/cudnn_graph.h"

namespace mslua {

// y = softmax(scale q k^T) v of queries q [batch, heads, t, d], keys k [batch, heads, s, d] and values v
// [batch, heads, s, e]; lse [batch, heads, t], f32 and dense, is the logarithm of each row's sum of exp(scores). Causal
// (t = s), a query sees the keys up to its own place. bf16 and f16.
struct AttentionShape {
  DType type = DType::kBF16;
  int64_t batch = 1, heads = 1, t = 0, s = 0, d = 0, e = 0;
  bool causal = false;
  double scale = 1;
  // Elements between batches, between heads and between rows; a row is dense.
  using Strides = std::array<int64_t, 3>;
  Strides q = {}, k = {}, v = {}, y = {};  // of q and dq, ..., y and dy
};

// Operands of the plan: q, k, v, y, lse. `choice`: as in CudnnGraph::Plan. Unimplemented where cuDNN has no plan.
StatusOr<std::unique_ptr<CudnnPlan>> PlanAttention(const CudnnTarget& target, const AttentionShape& shape,
                                                   const std::string& choice = "");

// The gradients dq, dk and dv. Operands: q, k, v, y, lse, dy, delta, dq, dk, dv; delta is memory for batch * heads * t
// floats.
StatusOr<std::unique_ptr<CudnnPlan>> PlanAttentionGrad(const CudnnTarget& target, const AttentionShape& shape,
                                                       const std::string& choice = "");

}  // namespace mslua
