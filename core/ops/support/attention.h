// Scaled dot-product attention by tiles: scores exist for one tile of queries and keys at a time.
// After FlashAttention (Dao et al., 2022; Dao, 2023): online softmax forward, recomputed scores backward.
#pragma once

#include "core/op/op_def.h"

namespace mslua {

struct Attention {
  int64_t heads = 1;                   // the product of the leading dimensions
  int64_t t = 0, s = 0, d = 0, e = 0;  // queries, keys, their length, the values' length
  bool causal = false;
  double scale = 1;

  static Attention Of(const Attrs& attrs, const Shape& q, const Shape& k, const Shape& v);
  // How many keys query `i` sees: all, or when causal those up to its own place, the last query at the last key.
  int64_t Seen(int64_t i) const { return causal ? i + 1 + s - t : s; }
};

// Gives the operator its kernels for f32 and bf16, arithmetic in f32; operands as
// core/ops/scaled_dot_product_attention.cc says, or packed_attention.cc.
void AddAttentionKernels(OpDef& op, bool grad);
void AddPackedAttentionKernels(OpDef& op, bool grad);

}  // namespace mslua
