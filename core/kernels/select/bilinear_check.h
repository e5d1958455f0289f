// Whether a kernel computes a product, a convolution or a gradient of one: all elements of the result are checked, in
// time proportional to the operands' and the result's sizes.
#pragma once

#include "core/kernels/bilinear.h"

namespace mslua {

enum class Verdict {
  kRight,
  kWrong,      // a result is not what it should be, or bytes beside the result or the scratch memory were written
  kUnchecked,  // there is not enough memory to run it
};

// Runs the kernel once, on operands of its own, and compares sums of its results: Freivalds' method. With random
// weights r, y = a b gives y r = a (b r), which takes no product of matrices; a convolution is summed in the same way
// over images and over channels. One element that differs changes such a sum.
//
// In bf16 the operands are -1, 0 and 1, so sparse that every result is a whole number of at most 256: sums agree to the
// last bit. In f32 they are random numbers, and sums agree within the rounding of their number of terms. Results,
// scratch memory and what lies beside the operands are NaN before, so that the use of memory that nobody wrote shows.
//
// In a gradient of weights with many groups only some groups, among them the first and the last, are summed; of the
// others it is not checked that they are right. Operands and results of more than 4 GiB are not checked.
Verdict CheckKernel(const Bilinear& b, Kernel& kernel);

}  // namespace mslua
