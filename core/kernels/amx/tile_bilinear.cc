#include "core/kernels/amx/tile_bilinear.h"

#include "core/base/parallel_for.h"
#include "core/kernels/amx/split_matmul.h"
#include "core/kernels/amx/tile_convolution.h"
#include "core/kernels/amx/tile_kernel.h"

namespace mslua::amx {
namespace {

Product ProductOf(const MatrixProduct& p) { return {p.m, p.n, p.k, p.transpose_a, p.transpose_b}; }

template <class T>
std::unique_ptr<Kernel> MakeConvolution(const Bilinear& b, std::unique_ptr<Kernel> plain) {
  const Convolution& c = b.convolution;
  const int64_t threads = ComputeThreads();
  if (b.op == BilinearOp::kGradWeight) {
    using Weight = TileWeightGradient<T>;
    return std::make_unique<TileKernel<T, Weight>>(Weight(c, threads), std::move(plain));
  }
  using Images = TileConvolution<T>;
  const Direction direction = b.op == BilinearOp::kConvolution ? Direction::kForward : Direction::kGradInput;
  return std::make_unique<TileKernel<T, Images>>(Images(c, direction, threads), std::move(plain));
}

}  // namespace

bool SupportsTiles(const Bilinear& b) {
  if (b.op == BilinearOp::kProduct)
    return b.type == DType::kF32 && b.product.batch == 1 && SupportsSplit(ProductOf(b.product));
  return (b.type == DType::kF32 || b.type == DType::kBF16) && SupportsTiles(b.convolution);
}

std::unique_ptr<Kernel> MakeTiles(const Bilinear& b, std::unique_ptr<Kernel> plain) {
  if (b.op == BilinearOp::kProduct) {
    return std::make_unique<TileKernel<float, SplitMatmul>>(SplitMatmul(ProductOf(b.product), ComputeThreads()),
                                                            std::move(plain));
  }
  return b.type == DType::kF32 ? MakeConvolution<float>(b, std::move(plain))
                               : MakeConvolution<BF16>(b, std::move(plain));
}

}  // namespace mslua::amx
