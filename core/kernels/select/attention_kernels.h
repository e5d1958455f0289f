// Scaled dot-product attention by tiles: scores exist for one tile of queries and keys at a time.
// After FlashAttention (Dao et al., 2022; Dao, 2023): online softmax forward, recomputed scores backward.
#pragma once

#include "core/kernels/attention.h"
#include "core/op/op_def.h"

namespace mslua {

// Gives the operator its kernels for f32 and bf16, arithmetic in f32; operands as
// core/ops/scaled_dot_product_attention.cc says, or packed_attention.cc.
void AddAttentionKernels(OpDef& op, bool grad);
void AddPackedAttentionKernels(OpDef& op, bool grad);

}  // namespace mslua
