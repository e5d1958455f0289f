// The tile instructions of Intel processors (AMX): eight registers of 16 rows of 64 bytes, and products of bf16 tiles
// summed in f32.
#pragma once

#include <cstdint>

namespace mslua::amx {

constexpr int64_t kBlock = 32;  // rows and columns of a block of sums; bf16 in a row of a tile

// Whether this processor has them for bf16, with AVX-512 and its bf16 conversions beside them, and the system lets this
// process use them; ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment goes without.
bool Available();

// 16 x 16 words, rows and columns exchanged; strides in words. Only where the instructions are available.
void TransposeWords(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride);

// A thread's tiles are set up while one of these lives.
class Tiles {
 public:
  Tiles();
  ~Tiles();
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

}  // namespace mslua::amx
