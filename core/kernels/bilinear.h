// A product of matrices, a convolution or one of a convolution's gradients: what kernels are made for
// (onednn_bilinear.h, tile_bilinear.h) and checked as (bilinear_check.h).
#pragma once

#include <cstdint>
#include <string>

#include "core/kernels/convolution.h"
#include "core/op/kernel.h"

namespace mslua {

// y [batch, m, n] = a [batch, m, k] b [batch, k, n]. Transposed, a is stored as [batch, k, m] and b as [batch, n, k].
struct MatrixProduct {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
};

enum class BilinearOp { kProduct, kConvolution, kGradInput, kGradWeight };

// The operands are, in this order:
//   kProduct      a, b -> y
//   kConvolution  images x, weight w -> images y
//   kGradInput    images y, weight w -> images x
//   kGradWeight   images x, images y -> weight w
struct Bilinear {
  BilinearOp op = BilinearOp::kProduct;
  DType type = DType::kF32;    // of the operands
  DType result = DType::kF32;  // of the result: `type`, or f32
  MatrixProduct product;       // of kProduct
  Convolution convolution;     // of the others

  static Bilinear Of(const MatrixProduct& p, DType type, DType result);
  static Bilinear Of(BilinearOp op, const Convolution& c, DType type);

  // Of operand 0 or 1, or of the result (2).
  int64_t elements(int operand) const;
  // The most products that one element of the result is a sum of.
  int64_t terms() const;
};

// One line without line breaks that tells all fields: "conv2d_grad_weight bf16 x 2,8,13,1 y ...".
std::string ToString(const Bilinear& b);

// What calls of the operators matmul, conv2d, conv2d_grad_input and conv2d_grad_weight compute. Their types were
// checked.
Bilinear ProductOf(const OpSpec& spec);
Bilinear ConvolutionOf(const OpSpec& spec);
Bilinear GradInputOf(const OpSpec& spec);
Bilinear GradWeightOf(const OpSpec& spec);

}  // namespace mslua
