#include "core/kernels/onednn/onednn_bilinear.h"

#include <algorithm>

#include "core/kernels/onednn/onednn.h"

namespace mslua::onednn {
namespace {

// Images whose channels are last and fill no block of 16, under a window of one pixel with a stride: oneDNN 2.6.3
// copies the pixels that the window meets to the front, whole blocks of channels at a time, into memory for fewer.
// Weight gradients come out wrong, and other memory is overwritten.
bool CopyOverflows(const Convolution& c) {
  constexpr int64_t kBlock = 16;
  return c.window.size[0] == 1 && c.window.size[1] == 1 && (c.window.stride[0] > 1 || c.window.stride[1] > 1) &&
         c.in_per_group() < kBlock;
}

// Whether the convolution takes less time in oneDNN's blocks of 8 channels, the images' copies into them and back
// included. With vectors of 256 bits oneDNN 2.6.3 needs 0.95 to 1.5 times as long for many channels that are last as
// for blocks; with AVX-512, for few channels and for windows of one pixel the copies cost more than is gained.
// (bench/results/training.md, "What was tried")
bool FasterInBlocks(const Convolution& c, DType t) {
  constexpr int64_t kBlock = 8, kChannelsOfGroup = 16, kChannels = 96;
  const int64_t in = c.in_per_group(), out = c.out_per_group();
  return t == DType::kF32 && !HasVectorsOf512() && c.window.size[0] * c.window.size[1] > 1 && in % kBlock == 0 &&
         out % kBlock == 0 && std::min(in, out) >= kChannelsOfGroup && c.x.c + c.y.c >= kChannels;
}

// The three operands in mslua's memory and as the primitive gets to choose them: images that are channels-last stay
// so unless blocks are faster, others may be blocked inside; weights always may.
struct Operands {
  Desc x, w, y;
  Desc wanted_x, wanted_w, wanted_y;
  dnnl_dims_t stride, dilation, before, after;
};

Desc ImageDesc(DType t, const Image& image) {
  const int64_t dims[] = {image.n, image.c, image.h, image.w};
  const auto strides = image.strides();
  return Strided(t, dims, strides);
}

Operands OperandsOf(const Convolution& c, DType t, DType arithmetic) {
  Operands o;
  Shape w = c.weight_shape();
  if (c.group > 1) {
    w[0] /= c.group;
    w.insert(w.begin(), c.group);
  }
  const int64_t x_dims[] = {c.x.n, c.x.c, c.x.h, c.x.w}, y_dims[] = {c.y.n, c.y.c, c.y.h, c.y.w};
  o.x = ImageDesc(t, c.x);
  o.y = ImageDesc(t, c.y);
  o.w = Strided(t, w);
  const bool keep_last = c.x.channels_last && !CopyOverflows(c) && !FasterInBlocks(c, t);
  o.wanted_x = keep_last ? ImageDesc(arithmetic, c.x) : AnyFormat(arithmetic, x_dims);
  o.wanted_y = keep_last ? ImageDesc(arithmetic, c.y) : AnyFormat(arithmetic, y_dims);
  o.wanted_w = AnyFormat(arithmetic, w);
  for (int a = 0; a < 2; ++a) {
    o.stride[a] = c.window.stride[a];
    o.dilation[a] = c.window.dilation[a] - 1;
    o.before[a] = c.window.before[a];
    o.after[a] = c.window.after[a];
  }
  return o;
}

PrimitiveDesc ForwardDesc(const Operands& o, dnnl_prop_kind_t kind) {
  dnnl_convolution_desc_t desc = {};
  if (dnnl_dilated_convolution_forward_desc_init(&desc, kind, dnnl_convolution_direct, &o.wanted_x, &o.wanted_w,
                                                 nullptr, &o.wanted_y, o.stride, o.dilation, o.before,
                                                 o.after) != dnnl_success) {
    return nullptr;
  }
  return Describe(&desc);
}

PrimitiveDesc GradInputDesc(const Operands& o) {
  const PrimitiveDesc forward = ForwardDesc(o, dnnl_forward_training);
  dnnl_convolution_desc_t desc = {};
  if (forward == nullptr || dnnl_dilated_convolution_backward_data_desc_init(
                                &desc, dnnl_convolution_direct, &o.wanted_x, &o.wanted_w, &o.wanted_y, o.stride,
                                o.dilation, o.before, o.after) != dnnl_success) {
    return nullptr;
  }
  return Describe(&desc, forward.get());
}

PrimitiveDesc GradWeightDesc(const Operands& o) {
  const PrimitiveDesc forward = ForwardDesc(o, dnnl_forward_training);
  dnnl_convolution_desc_t desc = {};
  if (forward == nullptr || dnnl_dilated_convolution_backward_weights_desc_init(
                                &desc, dnnl_convolution_direct, &o.wanted_x, &o.wanted_w, nullptr, &o.wanted_y,
                                o.stride, o.dilation, o.before, o.after) != dnnl_success) {
    return nullptr;
  }
  return Describe(&desc, forward.get());
}

// A stack of matrices [batch, rows, columns]; stored transposed, its columns are dense.
Desc Matrices(DType t, int64_t batch, int64_t rows, int64_t columns, bool transposed) {
  const int64_t strides[] = {rows * columns, transposed ? 1 : columns, transposed ? rows : 1};
  const int64_t dims[] = {batch, rows, columns};
  const int skip = batch == 1 ? 1 : 0;
  return Strided(t, absl::MakeConstSpan(dims).subspan(skip), absl::MakeConstSpan(strides).subspan(skip));
}

StatusOr<std::unique_ptr<Kernel>> MakeProduct(const Bilinear& b, DType arithmetic) {
  const MatrixProduct& p = b.product;
  const auto left = [&](DType t) { return Matrices(t, p.batch, p.m, p.k, p.transpose_a); };
  const auto right = [&](DType t) { return Matrices(t, p.batch, p.k, p.n, p.transpose_b); };
  const auto result = [&](DType t) { return Matrices(t, p.batch, p.m, p.n, false); };
  const Desc a = left(arithmetic), w = right(arithmetic), y = result(arithmetic == b.type ? b.result : arithmetic);
  dnnl_matmul_desc_t desc = {};
  dnnl_matmul_desc_init(&desc, &a, &w, nullptr, &y);
  return MakeKernel("matmul", Describe(&desc),
                    {{DNNL_ARG_SRC, false, 0, left(b.type)},
                     {DNNL_ARG_WEIGHTS, false, 1, right(b.type)},
                     {DNNL_ARG_DST, true, 0, result(b.result)}});
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> MakeBilinear(const Bilinear& b, DType arithmetic) {
  if (b.op == BilinearOp::kProduct) return MakeProduct(b, arithmetic);
  const Operands o = OperandsOf(b.convolution, b.type, arithmetic);
  switch (b.op) {
    case BilinearOp::kConvolution:
      return MakeKernel(
          "convolution", ForwardDesc(o, dnnl_forward_training),
          {{DNNL_ARG_SRC, false, 0, o.x}, {DNNL_ARG_WEIGHTS, false, 1, o.w}, {DNNL_ARG_DST, true, 0, o.y}});
    case BilinearOp::kGradInput:
      return MakeKernel(
          "convolution's input gradient", GradInputDesc(o),
          {{DNNL_ARG_DIFF_DST, false, 0, o.y}, {DNNL_ARG_WEIGHTS, false, 1, o.w}, {DNNL_ARG_DIFF_SRC, true, 0, o.x}});
    default:
      return MakeKernel(
          "convolution's weight gradient", GradWeightDesc(o),
          {{DNNL_ARG_SRC, false, 0, o.x}, {DNNL_ARG_DIFF_DST, false, 1, o.y}, {DNNL_ARG_DIFF_WEIGHTS, true, 0, o.w}});
  }
}

}  // namespace mslua::onednn
