// Attention of one head in bf16 with the tile instructions of Intel processors (AMX): products of bf16 summed in f32,
// softmax in f32, probabilities and score gradients rounded to bf16 between products. No score matrix is kept: 32 of
// its rows at a time.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace mslua::amx {

// A matrix [t, d] with rows `stride` elements apart.
struct Rows {
  const BF16* data = nullptr;
  int64_t stride = 0;
};
struct MutableRows {
  BF16* data = nullptr;
  int64_t stride = 0;
};

struct Head {
  int64_t t = 0, d = 0;  // queries and keys; columns of all matrices
  bool causal = false;   // a query sees the keys up to its own place
  float scale = 1;
};

// Whether this processor and system have the instructions and a head of these sizes can use them: whole tiles.
bool Supports(int64_t queries, int64_t keys, int64_t d, int64_t e);

// Bytes of scratch memory, 64-byte aligned, for one head at a time.
int64_t ForwardBytes(const Head& h);
int64_t BackwardBytes(const Head& h);

// y = softmax(q k' scale) v and lse, the logarithm of each row's sum of exponentials.
void Forward(const Head& h, Rows q, Rows k, Rows v, MutableRows y, float* lse, void* scratch);

// Gradients of q, k and v from dy and from `delta`, the sum over a row of dy * y less lse's gradient; null: computed
// from y.
void Backward(const Head& h, Rows q, Rows k, Rows v, Rows y, Rows dy, const float* lse, const float* delta,
              MutableRows dq, MutableRows dk, MutableRows dv, void* scratch);

// A thread's tiles are set up while one of these lives.
class Tiles {
 public:
  Tiles();
  ~Tiles();
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

}  // namespace mslua::amx
