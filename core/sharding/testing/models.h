// Small random training steps for tests of partitioning: forward, backward and update in one graph.
#pragma once

#include <cstdint>
#include <string>

#include "core/graph/graph.h"

namespace mslua::testing {

// The kinds of networks that RandomStep makes.
enum class Net { kMlp, kConvolution, kAttention, kEmbedding };
inline constexpr uint64_t kNets = 4;

// A step of a small network of that kind, every number of it from `seed`: widths, depth, residuals, shared weights,
// dropout. Dimensions are multiples of 12, 16 or 48, so that many numbers of ranks divide them; channels of images are
// also numbers that fill no kernel's block (10, 20, 28). Parameters are named
// "p0", ..., their momenta "m.p0", ...; outputs: "loss", then "d.p0", ... (gradients) and the updates. With `f32`
// parameters and data are f32, else f64.
Graph RandomStep(Net net, uint64_t seed, bool f32 = false);

// The bytes of all inputs of a step, from `seed`: small normal numbers, labels and tokens in range, scalars.
std::vector<std::string> RandomInputs(const Graph& step, uint64_t seed);

}  // namespace mslua::testing
