// Attention of one head in vectors of f32, of any sizes, on any processor. Operands are copied, so that what a product
// reads lies together, begins at a line and needs no conversion; no score matrix is kept.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/kernels/attention.h"
#include "core/kernels/attention_rows.h"

namespace mslua::vectors {

// Bytes of scratch memory, 64-byte aligned, for one head at a time.
int64_t ForwardBytes(const Attention& a);
int64_t BackwardBytes(const Attention& a);

// y = softmax(q k' scale) v and lse, the logarithm of each row's sum of exponentials.
void Forward(const Attention& a, Rows<float> q, Rows<float> k, Rows<float> v, MutableRows<float> y, float* lse,
             void* scratch);
void Forward(const Attention& a, Rows<BF16> q, Rows<BF16> k, Rows<BF16> v, MutableRows<BF16> y, float* lse,
             void* scratch);

// Gradients of q, k and v from dy and from `delta`, the sum over a row of dy * y less lse's gradient; null: computed
// from y.
void Backward(const Attention& a, Rows<float> q, Rows<float> k, Rows<float> v, Rows<float> y, Rows<float> dy,
              const float* lse, const float* delta, MutableRows<float> dq, MutableRows<float> dk, MutableRows<float> dv,
              void* scratch);
void Backward(const Attention& a, Rows<BF16> q, Rows<BF16> k, Rows<BF16> v, Rows<BF16> y, Rows<BF16> dy,
              const float* lse, const float* delta, MutableRows<BF16> dq, MutableRows<BF16> dk, MutableRows<BF16> dv,
              void* scratch);

}  // namespace mslua::vectors
