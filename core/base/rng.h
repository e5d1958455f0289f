// Counter-based random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A number is a pure
// function of (seed, stream, index), so that any rank can make any part of it.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace mslua {

// Four 32-bit words for counter (index, stream) under key `seed`.
std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream, uint64_t index);

// A stream of its own for a name ("conv1.weight") and a step or epoch.
uint64_t StreamOf(absl::string_view name, uint64_t step = 0);

// Uniform in [0, 1) with 24 random bits: element `i` is word i % 4 of block i / 4.
float UniformAt(uint64_t seed, uint64_t stream, uint64_t i);
// Standard normal by Box-Muller in double, rounded once: elements 2j and 2j+1 are the pair of
// words (0,1) or (2,3) of block i / 4.
float NormalAt(uint64_t seed, uint64_t stream, uint64_t i);
// Elements [begin, begin + n) of the same sequences.
void FillUniform(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t n, float* out);
void FillNormal(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t n, float* out);

// Uniform integer in [0, bound), bound > 0: multiply-shift on 64 bits, bias below 2^-32.
uint64_t UniformIntAt(uint64_t seed, uint64_t stream, uint64_t i, uint64_t bound);

}  // namespace mslua
