#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/simd/softmax.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

std::string Rule(const Attrs& attrs, absl::Span<const TensorType> in) {
  std::string dims;
  for (int64_t d = 0; d < in[0].rank(); ++d) absl::StrAppend(&dims, d == attrs.Int("axis") ? " !d" : " d", d);
  return absl::StrCat(dims, " -> ", dims);
}

std::vector<Value> Grad(GradContext& c) {
  const Value s = ReduceSum(c.g, c.dy[0], {c.attrs.Int("axis")}, true);
  return {EmitFormula(c.g, "dy - exp(y) * s", {{"y", c.outputs[0]}, {"s", s}, {"dy", c.dy[0]}})};
}

Status Reference(const OpCall& call) {
  const AxisView v = AxisView::Of(call.inputs[0].type.shape, call.attrs.Int("axis"));
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    for (int64_t r = 0; r < v.outer * v.inner; ++r) {
      const int64_t at = r / v.inner * v.size * v.inner + r % v.inner;
      const T* x = call.inputs[0].as<T>() + at;
      T* y = call.outputs[0].as<T>() + at;
      C max = -INFINITY, sum = 0;
      for (int64_t i = 0; i < v.size; ++i) max = std::max(max, static_cast<C>(x[i * v.inner]));
      for (int64_t i = 0; i < v.size; ++i) sum += std::exp(static_cast<C>(x[i * v.inner]) - max);
      for (int64_t i = 0; i < v.size; ++i)
        y[i * v.inner] = static_cast<T>(static_cast<C>(x[i * v.inner]) - max - std::log(sum));
    }
  });
  return absl::OkStatus();
}

DeviceProgram OnDevice(const OpSpec& spec) {
  const AxisView v = AxisView::Of(spec.inputs[0].shape, spec.attrs.Int("axis"));
  return OneStep(EachRow(v.outer * v.inner, v.size,
                         absl::StrCat("  typedef ", DeviceComputeType(spec.inputs[0].dtype), " C;\n",
                                      Constant("size", v.size), Constant("inner", v.inner), R"cuda(
  const i64 at = row / inner * size * inner + row % inner;
  C max = -(C)INFINITY, sum = 0;
  for (i64 k = team.lane; k < size; k += team.lanes) max = Max<C>(max, Get(x0[at + k * inner]));
  max = team.Max(max);
  for (i64 k = team.lane; k < size; k += team.lanes) sum += Exp((C)Get(x0[at + k * inner]) - max);
  sum = team.Sum(sum);
  const C lse = Log(sum);
  for (i64 k = team.lane; k < size; k += team.lanes) Set(y0[at + k * inner], (C)Get(x0[at + k * inner]) - max - lse);
)cuda")));
}

}  // namespace

MSLUA_OPERATOR(log_softmax) {
  OpDef op("log_softmax");
  op.Computes(Precision::kWide);
  op.Class("LogSoftmax").Doc("The logarithm of softmax(x) along `axis`: x minus the logarithm of the sum of exp(x).");
  op.Input("x").Attr("axis", AttrKind::kAxis, int64_t{-1}, "the axis that stays whole");
  op.Rule(Rule).Grad(Grad).Reference(Reference).OnDevice(OnDevice).Fast(HighwaySoftmax(true)).InPlace(0, 0);
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  op.AddSample({{{DType::kF32, {2, 3, 37}}}, {}, -3, 3});
  op.AddSample({{{DType::kF32, {2, 5, 3}}}, {{"axis", int64_t{1}}}, -3, 3});
  op.AddSample({{{DType::kF32, {3, kSoftmaxColumns + 6}}}, {{"axis", int64_t{0}}}, -3, 3});
  return {op};
}

MSLUA_ONNX(log_softmax) { c.Result(c.Op("LogSoftmax", {c.In(0)}, {{"axis", c.attrs().Int("axis")}})); }

}  // namespace mslua
