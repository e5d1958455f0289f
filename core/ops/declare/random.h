// Numbers of random operators: a pure function of (seed, stream of the node, step, place in the whole tensor), so that
// every rank makes its shard of the same numbers.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "core/op/op_def.h"

namespace mslua {

// The random stream of a node at one step.
struct RandomStream {
  uint64_t seed, stream;
  // `attrs` hold `seed` and `_rng`; `step` is the value of the operator's step input, i32 or i64.
  RandomStream(const Attrs& attrs, DType step_type, const void* step);
};

// Calls f(offset, index, n) for runs of `shape`, which together are all of it: n elements from `offset` of the tensor
// are [index, index + n) of the whole. The attributes that LocalizeRandom sets say where the part lies. Large tensors
// use the compute threads.
void ForEachRun(const Attrs& attrs, const Shape& shape,
                absl::FunctionRef<void(int64_t offset, int64_t index, int64_t n)> f);

// CUDA text that declares what a kernel's element `i` of a tensor of `shape` needs: `seed`, `stream` and `index`, its
// place in the whole. Input `step` is the step's number.
std::string DeviceRandom(const Attrs& attrs, const Shape& shape, int step);

// Localize of random operators: `_begin` and `_global` are the place of output 0 in the whole, and the whole's shape.
StatusOr<Attrs> LocalizeRandom(const LocalizeCall& call);

// Declares what every random operator has: the input `step` and the attribute `seed`.
void DeclareRandom(OpDef& op);

// random_uniform and random_normal: a tensor made from `step` alone, shape and dtype by attribute.
// `fill` is FillUniform or FillNormal of core/base/rng.h; the result is number * scale + shift, from the attributes of
// these names.
using FillFn = void (*)(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t n, float* out);
OpDef RandomTensorOp(std::string name, FillFn fill, const char* scale, const char* shift, bool scale_is_end);

}  // namespace mslua
