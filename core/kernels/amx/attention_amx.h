// Attention of one head with the tile instructions of Intel processors (AMX): products summed in f32, softmax in f32.
// No score matrix is kept: 32 of its rows at a time. In bf16, probabilities and score gradients are rounded to bf16
// between products; in f32, every operand of a product is a sum of three bf16 (split_matmul.h).
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/kernels/amx/amx.h"
#include "core/kernels/attention_rows.h"

namespace mslua::amx {

struct Head {
  int64_t t = 0, d = 0;  // queries and keys; columns of all matrices
  bool causal = false;   // a query sees the keys up to its own place
  float scale = 1;
};

// Whether this processor and system have the instructions and a head of these sizes can use them: whole tiles.
bool Supports(int64_t queries, int64_t keys, int64_t d, int64_t e);

// Bytes of scratch memory, 64-byte aligned, for one head at a time.
template <class T>
int64_t ForwardBytes(const Head& h);
template <class T>
int64_t BackwardBytes(const Head& h);

// y = softmax(q k' scale) v and lse, the logarithm of each row's sum of exponentials.
template <class T>
void Forward(const Head& h, Rows<T> q, Rows<T> k, Rows<T> v, MutableRows<T> y, float* lse, void* scratch);

// Gradients of q, k and v from dy and from `delta`, the sum over a row of dy * y less lse's gradient; null: computed
// from y.
template <class T>
void Backward(const Head& h, Rows<T> q, Rows<T> k, Rows<T> v, Rows<T> y, Rows<T> dy, const float* lse,
              const float* delta, MutableRows<T> dq, MutableRows<T> dk, MutableRows<T> dv, void* scratch);

}  // namespace mslua::amx
