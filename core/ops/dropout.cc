#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/rng.h"
#include "core/kernels/dispatch.h"
#include "core/op/device_text.h"
#include "core/ops/declare/random.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

template <class T>
void Drop(const Attrs& attrs, const RandomStream& random, const Shape& shape, const T* x, T* y) {
  constexpr int64_t kTile = 1024;
  const float p = static_cast<float>(attrs.Float("p"));
  const auto scale = static_cast<ComputeType<T>>(1.0 / (1.0 - attrs.Float("p")));
  ForEachRun(attrs, shape, [&](int64_t offset, int64_t index, int64_t n) {
    float u[kTile];
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t count = std::min(kTile, n - at);
      FillUniform(random.seed, random.stream, static_cast<uint64_t>(index + at), static_cast<uint64_t>(count), u);
      const T* from = x + offset + at;
      T* to = y + offset + at;
      for (int64_t i = 0; i < count; ++i)
        to[i] = u[i] >= p ? static_cast<T>(static_cast<ComputeType<T>>(from[i]) * scale) : T{};
    }
  });
}

}  // namespace

// Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 2014. The mask is not
// kept: the gradient is the same operator on dy, whose counters give the same mask.
MSLUA_OPERATOR(dropout) {
  OpDef op("dropout");
  op.Class("Dropout").Doc(
      "x with each element zero with probability p, and the rest scaled by 1 / (1 - p); others at every `step` (the "
      "training step's number).");
  op.Input("x");
  DeclareRandom(op);
  op.attrs.insert(op.attrs.begin(), {"p", AttrKind::kFloat, 0.5, false, "the probability of a zero", {}});
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    if (a.Float("p") >= 0 && a.Float("p") < 1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("p is ", a.Float("p"), ", expected 0 <= p < 1"));
  });
  op.Rule("*r, -> *r").InPlace(0, 0);
  op.Grad([](GradContext& c) -> std::vector<Value> {
    return {c.g.Op("dropout", {c.dy[0], c.x(1)}, c.attrs), Value()};
  });
  op.Reference([](const OpCall& c) {
    const RandomStream random(c.attrs, c.inputs[1].type.dtype, c.inputs[1].data);
    DispatchFloat(c.outputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      Drop(c.attrs, random, c.outputs[0].type.shape, c.inputs[0].as<T>(), c.outputs[0].as<T>());
    });
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& spec) {
    const double p = spec.attrs.Float("p");
    return OneStep(EachElement(spec.outputs[0].elements(),
                               absl::StrCat("  typedef ", DeviceComputeType(spec.outputs[0].dtype), " C;\n",
                                            DeviceRandom(spec.attrs, spec.outputs[0].shape, 1),
                                            "  Set(y0[i], UniformAt(seed, stream, index) >= (float)", NumberText(p),
                                            " ? Get(x0[i]) * (C)", NumberText(1 / (1 - p)), " : (C)0);")));
  });
  op.AddSample({{{DType::kF32, {4, 6}}, {DType::kI64, {}}}, {{"p", 0.3}}});
  op.AddSample({{{DType::kF32, {2, 3, 5}}, {DType::kI64, {}}}, {{"seed", int64_t{3}}}});
  return {op};
}

}  // namespace mslua
