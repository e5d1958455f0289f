#include "absl/strings/str_cat.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/op/elementwise.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Aligned at the last dimension: size-1 and missing dimensions of x are repeated.
std::string BroadcastRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  const auto& shape = attrs.Ints("shape");
  const int64_t lead = static_cast<int64_t>(shape.size()) - in[0].rank();
  std::string left, right;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    const bool has = d >= lead, repeats = !has || (in[0].shape[d - lead] == 1 && shape[d] != 1);
    if (has) absl::StrAppend(&left, repeats ? "1" : absl::StrCat("d", d), " ");
    absl::StrAppend(&right, "d", d, " ");
  }
  return absl::StrCat(left, "-> ", right);
}

std::vector<Value> BroadcastGrad(GradContext& c) {
  const Shape from = c.g.TypeOf(c.x(0)).shape, to = c.g.TypeOf(c.dy[0]).shape;
  const int64_t lead = static_cast<int64_t>(to.size()) - static_cast<int64_t>(from.size());
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < static_cast<int64_t>(to.size()); ++d) {
    if (d < lead || (from[d - lead] == 1 && to[d] != 1)) axes.push_back(d);
  }
  return {Reshape(c.g, ReduceSum(c.g, c.dy[0], axes, true), from)};
}

}  // namespace

MSLUA_OPERATOR(broadcast_to) {
  OpDef op("broadcast_to");
  op.Class("BroadcastTo").Doc("Repeats x along dimensions of size 1, and new leading ones, to `shape`.");
  op.Input("x").AllTypes().Required("shape", AttrKind::kInts, "the result's shape");
  op.Rule(BroadcastRule);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const auto& shape = a.Ints("shape");
    const auto merged = BroadcastShape(in[0].shape, shape);
    if (!merged.ok() || *merged != Shape(shape.begin(), shape.end())) {
      return absl::InvalidArgumentError(absl::StrCat("does not broadcast to ", ToString(absl::MakeConstSpan(shape))));
    }
    return std::vector<TensorType>{{in[0].dtype, *merged}};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    Attrs attrs = c.attrs;
    const Shape& shape = c.local_outputs[0].shape;
    return attrs.Set("shape", std::vector<int64_t>(shape.begin(), shape.end()));
  });
  op.Grad(BroadcastGrad);
  op.Reference([](const OpCall& c) {
    ScalarProgram copy;
    copy.num_inputs = 1;
    copy.code.push_back({ScalarOp::kInput, {0, -1, -1}, 0});
    copy.results = {0};
    return EvaluateElementwise(copy, c.inputs, c.outputs);
  });
  op.OnDevice([](const OpSpec& spec) {
    const std::string from = BroadcastIndex("i", spec.outputs[0].shape, spec.inputs[0].shape);
    return OneStep(EachElement(spec.outputs[0].elements(), absl::StrCat("  y0[i] = x0[", from, "];")));
  });
  op.AddSample({{{DType::kF32, {3, 1}}}, {{"shape", std::vector<int64_t>{2, 3, 4}}}});
  op.AddSample({{{DType::kF32, {}}}, {{"shape", std::vector<int64_t>{5}}}});
  return {op};
}

MSLUA_ONNX(broadcast_to) { c.Result(c.Op("Expand", {c.In(0), c.Shape(c.DimsOut(0, {"shape"}))})); }

}  // namespace mslua
