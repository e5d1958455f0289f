// Products of f32 matrices with the tile instructions of Intel processors (AMX), whose operands are bf16. Each number
// is the sum of three bf16, h + m + l, exactly: 8 bits of it each. Of the nine products of two such numbers six are
// summed, in f32: hh, hm, mh, mm, hl, lh. What is left out is at most 2^-24 of the product, one rounding of f32, and
// 2^-27 of it typically. See docs/explanation/decisions/0015-f32-products-of-bf16-tiles.md.
#pragma once

#include <cstdint>

namespace mslua::amx {

// y [m, n] = op(a) op(b), all dense and row-major: a is [m, k], or [k, m] where transposed; b is [k, n], or [n, k].
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
};

// Whether this processor has the instructions, and the sizes repay splitting the operands.
bool SupportsSplit(const Product& p);

class SplitMatmul {
 public:
  SplitMatmul(const Product& p, int64_t threads) : p_(p), threads_(threads) {}

  // Of scratch memory, 64-byte aligned.
  int64_t scratch_bytes() const;

  // Runs on the calling thread's compute threads, at most `threads`; the bits of y do not depend on how many. False
  // where an operand is not finite, or so large (3.39e38) that its upper part is not: y is undefined then.
  bool Run(const float* a, const float* b, float* y, void* scratch) const;

 private:
  Product p_;
  int64_t threads_;
};

}  // namespace mslua::amx
