#include <vector>

#include "core/kernels/dispatch.h"
#include "core/kernels/select/attention_kernels.h"
#include "core/kernels/strided_copy.h"
#include "core/op/registry.h"
#include "core/ops/declare/device_attention.h"
#include "core/ops/declare/row_norm.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// A tensor of the reference's own.
struct Owned {
  std::vector<char> bytes;
  TensorView view;
  explicit Owned(const TensorType& type) : bytes(static_cast<size_t>(type.bytes())), view{type, bytes.data()} {}
};

// Between columns [first, first + heads * d) of [n, t, width] and [n, heads, t, d].
void CopyHeads(const TensorView& packed, int64_t first, const TensorView& apart, bool unpack) {
  const int64_t size = SizeOf(packed.type.dtype), t = packed.type.shape[1], width = packed.type.shape[2];
  const int64_t d = apart.type.shape[3];
  char* columns = static_cast<char*>(packed.data) + first * size;
  const Shape strides = {t * width, d, width, 1}, dense = RowMajorStrides(apart.type.shape);
  if (unpack)
    StridedCopy(size, apart.type.shape, columns, strides, apart.data, dense);
  else
    StridedCopy(size, apart.type.shape, apart.data, dense, columns, strides);
}

// The operands of scaled_dot_product_attention that lie in a packed tensor.
struct Unpacked {
  TensorType type;
  std::vector<Owned> parts;
};
Unpacked Unpack(const Attrs& attrs, const TensorView& packed, int count) {
  const int64_t heads = attrs.Int("heads"), d = packed.type.shape[2] / count / heads;
  Unpacked u;
  u.type = {packed.type.dtype, {packed.type.shape[0], heads, packed.type.shape[1], d}};
  for (int i = 0; i < count; ++i) {
    u.parts.emplace_back(u.type);
    CopyHeads(packed, i * heads * d, u.parts.back().view, true);
  }
  return u;
}

Attrs AttentionAttrs(const Attrs& attrs) { return {{"causal", attrs.Bool("causal")}, {"scale", attrs.Float("scale")}}; }

Status Forward(const OpCall& call) {
  const Unpacked x = Unpack(call.attrs, call.inputs[0], 3);
  Owned y(x.type);
  const std::vector<TensorView> in = {x.parts[0].view, x.parts[1].view, x.parts[2].view};
  RETURN_IF_ERROR(Operators()
                      .Find("scaled_dot_product_attention")
                      ->reference({AttentionAttrs(call.attrs), in, {y.view, call.outputs[1]}}));
  CopyHeads(call.outputs[0], 0, y.view, false);
  return absl::OkStatus();
}

Status Backward(const OpCall& call) {
  const Unpacked x = Unpack(call.attrs, call.inputs[0], 3), y = Unpack(call.attrs, call.inputs[1], 1),
                 dy = Unpack(call.attrs, call.inputs[3], 1);
  const Owned delta(call.inputs[2].type);
  const int64_t rows = delta.view.type.elements(), d = y.type.shape[3];
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = r * d; c < (r + 1) * d; ++c)
      sum += LoadAsDouble(y.type.dtype, y.parts[0].view.data, c) * LoadAsDouble(y.type.dtype, dy.parts[0].view.data, c);
    StoreDouble(delta.view.type.dtype, delta.view.data, r, sum);
  }
  std::vector<Owned> d_parts(3, Owned(x.type));
  std::vector<TensorView> out;
  for (Owned& part : d_parts) out.push_back({x.type, part.bytes.data()});
  const std::vector<TensorView> in = {x.parts[0].view, x.parts[1].view, x.parts[2].view,
                                      call.inputs[2],  delta.view,      dy.parts[0].view};
  RETURN_IF_ERROR(
      Operators().Find("scaled_dot_product_attention_grad")->reference({AttentionAttrs(call.attrs), in, out}));
  for (int i = 0; i < 3; ++i) CopyHeads(call.outputs[0], i * x.type.shape[1] * d, out[i], false);
  return absl::OkStatus();
}

// The places of heads in qkv [n, t, 3 * heads * d] (`packed`, and its gradient `d_packed`) and y [n, t, heads * d].
AttentionPlaces PlacesOf(const Attention& a, int64_t heads, const char* packed, const char* d_packed, const char* y,
                         const char* dy) {
  const int64_t width = heads * a.d;
  const auto head = [&](const char* operand, int64_t row, int64_t first) {
    return absl::StrCat(operand, " + head / ", heads, " * ", a.t * row, " + ", first, " + head % ", heads, " * ", a.d);
  };
  AttentionPlaces at;
  at.q_row = at.k_row = at.v_row = 3 * width;
  at.y_row = width;
  at.q = head(packed, 3 * width, 0);
  at.k = head(packed, 3 * width, width);
  at.v = head(packed, 3 * width, 2 * width);
  at.dq = head(d_packed, 3 * width, 0);
  at.dk = head(d_packed, 3 * width, width);
  at.dv = head(d_packed, 3 * width, 2 * width);
  at.y = head(y, width, 0);
  at.dy = head(dy, width, 0);
  return at;
}

DeviceProgram ForwardOnDevice(const OpSpec& spec) {
  const Attention a = Attention::OfPacked(spec.attrs, spec.inputs[0].shape);
  AttentionPlaces at = PlacesOf(a, spec.attrs.Int("heads"), "x0", "x0", "y0", "y0");
  at.lse = absl::StrCat("y1 + head * ", a.t);
  return AttentionOnDevice(a, spec.inputs[0].dtype, at);
}

DeviceProgram BackwardOnDevice(const OpSpec& spec) {
  const Attention a = Attention::OfPacked(spec.attrs, spec.inputs[0].shape);
  const int64_t heads = spec.attrs.Int("heads");
  AttentionPlaces at = PlacesOf(a, heads, "x0", "y0", "x1", "x3");
  at.lse = absl::StrCat("x2 + head * ", a.t);
  const std::string statistics = DeviceType(spec.inputs[2].dtype);
  at.delta = absl::StrCat("(const ", statistics, "*)scratch + head * ", a.t);
  DeviceProgram program = AttentionGradOnDevice(a, spec.inputs[0].dtype, at);
  // delta first: each row's sum of dy * y.
  program.steps.insert(
      program.steps.begin(),
      EachElement(a.heads * a.t,
                  absl::StrCat("  const i64 head = i / ", a.t, ", row = i % ", a.t, ";\n  const auto y = ", at.y,
                               ", dy = ", at.dy, " ;\n  ", statistics, " sum = 0;\n  for (i64 k = 0; k < ", a.d,
                               "; ++k) sum += (", statistics, ")Get(y[row * ", at.y_row, " + k]) * (", statistics,
                               ")Get(dy[row * ", at.y_row, " + k]);\n  ((", statistics, "*)scratch)[i] = sum;")));
  program.scratch_bytes = spec.inputs[2].bytes();
  return program;
}

void Declare(OpDef& op) {
  op.Required("heads", AttrKind::kInt, "the number of heads")
      .Attr("causal", AttrKind::kBool, false, "a query sees the keys up to its own place")
      .Attr("scale", AttrKind::kFloat, 0.0, "of the scores; 0: 1 / sqrt(d)");
}

Status CheckPacked(const Attrs& attrs, const TensorType& qkv) {
  const int64_t heads = attrs.Int("heads");
  if (qkv.rank() == 3 && heads >= 1 && qkv.shape[2] > 0 && qkv.shape[2] % (3 * heads) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError("qkv is [n, t, 3 * heads * d]");
}

double Flops(const Attrs& attrs, absl::Span<const TensorType> in, double products) {
  const Attention a = Attention::OfPacked(attrs, in[0].shape);
  return products * 2.0 * static_cast<double>(a.heads * a.t * a.s * a.d) * (a.causal ? 0.5 : 1.0);
}

TensorType Lse(const Attrs& attrs, const TensorType& qkv) {
  return {StatisticsType(qkv.dtype), {qkv.shape[0], attrs.Int("heads"), qkv.shape[1]}};
}
TensorType Result(const TensorType& qkv) { return {qkv.dtype, {qkv.shape[0], qkv.shape[1], qkv.shape[2] / 3}}; }

}  // namespace

MSLUA_OPERATOR(packed_attention) {
  const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };

  OpDef op("packed_attention");
  op.Doc(
      "scaled_dot_product_attention of queries, keys and values that lie side by side as a projection gives them: qkv "
      "[n, t, 3 * heads * d] gives y [n, t, heads * d] and lse [n, heads, t]. Made by a pass, so that no head is "
      "moved.");
  op.Input("qkv").Outputs({"y", "lse"});
  Declare(op);
  op.Rule([](const Attrs&, absl::Span<const TensorType>) { return std::string("n !t !c -> n !t !e, n !h !t"); });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    RETURN_IF_ERROR(CheckPacked(a, in[0]));
    return std::vector<TensorType>{Result(in[0]), Lse(a, in[0])};
  });
  op.Reference(Forward).OnDevice(ForwardOnDevice);
  AddPackedAttentionKernels(op, false);
  op.Flops(
      [](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType>) { return Flops(a, in, 2); });
  op.AddSample({{f32({2, 5, 24})}, {{"heads", int64_t{2}}}});
  op.AddSample({{f32({2, 37, 3 * 3 * 9})}, {{"heads", int64_t{3}}, {"causal", true}, {"scale", 0.7}}});

  OpDef grad("packed_attention_grad");
  grad.Doc("The gradient of packed_attention's qkv, where lse has none.");
  grad.Input("qkv").Input("y").Input("lse", TypeClass::kFloat).Input("dy").Outputs({"dqkv"});
  Declare(grad);
  grad.Rule([](const Attrs&, absl::Span<const TensorType>) {
    return std::string("n !t !c, n !t !e, n !h !t, n !t !e -> n !t !c");
  });
  grad.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    RETURN_IF_ERROR(CheckPacked(a, in[0]));
    if (in[1] != Result(in[0]) || in[2] != Lse(a, in[0]) || in[3] != in[1])
      return absl::InvalidArgumentError("y and dy are [n, t, heads * d], lse is [n, heads, t] of the statistics' type");
    return std::vector<TensorType>{in[0]};
  });
  grad.Reference(Backward).OnDevice(BackwardOnDevice);
  AddPackedAttentionKernels(grad, true);
  grad.Flops(
      [](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType>) { return Flops(a, in, 5); });
  grad.AddSample({{f32({2, 5, 24}), f32({2, 5, 8}), f32({2, 2, 5}), f32({2, 5, 8})}, {{"heads", int64_t{2}}}, 0.2, 1});
  grad.AddSample({{f32({2, 37, 81}), f32({2, 37, 27}), f32({2, 3, 37}), f32({2, 37, 27})},
                  {{"heads", int64_t{3}}, {"causal", true}},
                  0.2,
                  1});
  return {op, grad};
}

}  // namespace mslua
