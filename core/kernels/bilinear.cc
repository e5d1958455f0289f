#include "core/kernels/bilinear.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {

Bilinear Bilinear::Of(const MatrixProduct& p, DType type, DType result) {
  Bilinear b;
  b.type = type;
  b.result = result;
  b.product = p;
  return b;
}

Bilinear Bilinear::Of(BilinearOp op, const Convolution& c, DType type) {
  Bilinear b;
  b.op = op;
  b.type = b.result = type;
  b.convolution = c;
  return b;
}

int64_t Bilinear::elements(int operand) const {
  const MatrixProduct& p = product;
  if (op == BilinearOp::kProduct) return p.batch * (operand == 0 ? p.m * p.k : operand == 1 ? p.k * p.n : p.m * p.n);
  const int64_t x = convolution.x.elements(), y = convolution.y.elements(), w = NumElements(convolution.weight_shape());
  switch (op) {
    case BilinearOp::kConvolution:
      return operand == 0 ? x : operand == 1 ? w : y;
    case BilinearOp::kGradInput:
      return operand == 0 ? y : operand == 1 ? w : x;
    default:
      return operand == 0 ? x : operand == 1 ? y : w;
  }
}

int64_t Bilinear::terms() const {
  if (op == BilinearOp::kProduct) return product.k;
  const int64_t taps = convolution.window.size[0] * convolution.window.size[1];
  switch (op) {
    case BilinearOp::kConvolution:
      return convolution.in_per_group() * taps;
    case BilinearOp::kGradInput:
      return convolution.out_per_group() * taps;
    default:
      return convolution.y.n * convolution.y.pixels();
  }
}

std::string ToString(const Bilinear& b) {
  static constexpr const char* kNames[] = {"matmul", "conv2d", "conv2d_grad_input", "conv2d_grad_weight"};
  std::string out =
      absl::StrCat(kNames[static_cast<int>(b.op)], " ", Name(b.type), b.result == b.type ? "" : " to f32");
  if (b.op == BilinearOp::kProduct) {
    const MatrixProduct& p = b.product;
    absl::StrAppend(&out, " batch ", p.batch, " m ", p.m, " n ", p.n, " k ", p.k, p.transpose_a ? " transpose_a" : "");
    absl::StrAppend(&out, p.transpose_b ? " transpose_b" : "");
    return out;
  }
  const Convolution& c = b.convolution;
  const auto images = [](const Image& i) { return absl::StrCat(i.n, ",", i.c, ",", i.h, ",", i.w); };
  const auto pair = [](const std::array<int64_t, 2>& v) { return absl::StrCat(v[0], ",", v[1]); };
  const Window& w = c.window;
  absl::StrAppend(&out, c.x.channels_last ? " NHWC" : " NCHW", " x ", images(c.x), " y ", images(c.y), " group ",
                  c.group);
  absl::StrAppend(&out, " kernel ", pair(w.size), " stride ", pair(w.stride), " dilation ", pair(w.dilation));
  absl::StrAppend(&out, " padding ", pair(w.before), ",", pair(w.after));
  return out;
}

Bilinear ProductOf(const OpSpec& spec) {
  const Shape& a = spec.inputs[0].shape;
  const Shape& y = spec.outputs[0].shape;
  const size_t r = y.size();
  MatrixProduct p;
  p.transpose_a = spec.attrs.Bool("transpose_a");
  p.transpose_b = spec.attrs.Bool("transpose_b");
  p.m = y[r - 2];
  p.n = y[r - 1];
  p.k = a[p.transpose_a ? r - 2 : r - 1];
  p.batch = NumElements(absl::MakeConstSpan(y).subspan(0, r - 2));
  return Bilinear::Of(p, spec.outputs[0].dtype, spec.outputs[0].dtype);
}

Bilinear ConvolutionOf(const OpSpec& s) {
  return Bilinear::Of(BilinearOp::kConvolution, *ResolveConvolution(s.attrs, s.inputs[0], s.inputs[1]),
                      s.outputs[0].dtype);
}
Bilinear GradInputOf(const OpSpec& s) {
  return Bilinear::Of(BilinearOp::kGradInput, *ResolveConvolution(s.attrs, s.outputs[0], s.inputs[1]),
                      s.outputs[0].dtype);
}
Bilinear GradWeightOf(const OpSpec& s) {
  return Bilinear::Of(BilinearOp::kGradWeight, *ResolveConvolution(s.attrs, s.inputs[0], s.outputs[0]),
                      s.outputs[0].dtype);
}

}  // namespace mslua
