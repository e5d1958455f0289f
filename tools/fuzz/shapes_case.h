// One case of tools/fuzz/shapes: a product, a convolution or one of its gradients, a pooling or an attention of random
// shape and type, run by the kernel that a training would take and compared with f64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/op/attrs.h"

namespace mslua::fuzz {

// What to draw from. Empty: everything there is.
struct Choice {
  std::vector<std::string> operators;  // "matmul", "conv2d", ...: Drawn() lists them
  std::vector<std::string> types;      // "float32", "bfloat16", "float16"
  std::vector<int> threads = {1, 2, 3};
};

struct Case {
  std::string op;
  std::vector<TensorType> inputs;
  Attrs attrs;
  int threads = 1;
  int64_t terms = 1;  // of a sum, at most: what the rounding errors of a result depend on
};

// The operators that DrawCase draws.
const std::vector<std::string>& Drawn();

// A function of (seed, index, choice) alone.
Case DrawCase(uint64_t seed, int64_t index, const Choice& choice);
std::string ToString(const Case& c);

// Runs the case twice. An error when a result is outside the type's rounding of the f64 result, when the two runs
// differ in a bit, or when bytes beside the result or beside the scratch memory were written. Results, scratch memory
// and what lies behind the operands hold NaN before the first run and 3.4e38 before the second.
Status RunCase(const Case& c, uint64_t seed);

}  // namespace mslua::fuzz
