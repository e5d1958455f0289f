#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/rng.h"
#include "core/kernels/dispatch.h"
#include "core/op/device_text.h"
#include "core/ops/declare/random.h"
#include "core/ops/define.h"

namespace mslua {

// dropout_highway.cc
// y[i] = u[i] >= p ? x[i] * scale : 0 for i in [0, n); y may be x.
void HighwayKeepScaled(const float* u, float p, float scale, const float* x, float* y, int64_t n);
void HighwayKeepScaled(const float* u, float p, float scale, const BF16* x, BF16* y, int64_t n);

namespace {

// Calls f(u, offset, n) for all elements in parts: numbers u [n] in [0, 1) of elements [offset, offset + n).
template <class F>
void ForEachDraw(const Attrs& attrs, const RandomStream& random, const Shape& shape, F f) {
  constexpr int64_t kTile = 1024;
  ForEachRun(attrs, shape, [&](int64_t offset, int64_t index, int64_t n) {
    float u[kTile];
    for (int64_t at = 0; at < n; at += kTile) {
      const int64_t count = std::min(kTile, n - at);
      FillUniform(random.seed, random.stream, static_cast<uint64_t>(index + at), static_cast<uint64_t>(count), u);
      f(u, offset + at, count);
    }
  });
}

template <class T>
void Drop(const Attrs& attrs, const RandomStream& random, const Shape& shape, const T* x, T* y) {
  const float p = static_cast<float>(attrs.Float("p"));
  const auto scale = static_cast<ComputeType<T>>(1.0 / (1.0 - attrs.Float("p")));
  ForEachDraw(attrs, random, shape, [&](const float* u, int64_t offset, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      y[offset + i] = u[i] >= p ? static_cast<T>(static_cast<ComputeType<T>>(x[offset + i]) * scale) : T{};
  });
}

// The same bits as the reference.
template <class T>
class DropoutKernel : public Kernel {
 public:
  explicit DropoutKernel(const OpSpec& s) : attrs_(s.attrs), shape_(s.outputs[0].shape), step_(s.inputs[1].dtype) {}
  Status Run(const Buffers& b) override {
    const RandomStream random(attrs_, step_, b.inputs[1]);
    const double p = attrs_.Float("p");
    const T* x = static_cast<const T*>(b.inputs[0]);
    T* y = static_cast<T*>(b.outputs[0]);
    ForEachDraw(attrs_, random, shape_, [&](const float* u, int64_t offset, int64_t n) {
      HighwayKeepScaled(u, static_cast<float>(p), static_cast<float>(1 / (1 - p)), x + offset, y + offset, n);
    });
    return absl::OkStatus();
  }

 private:
  const Attrs attrs_;
  const Shape shape_;
  const DType step_;
};

FastKernel HighwayDropout() {
  return {"highway",
          [](const OpSpec& s) { return s.inputs[0].dtype == DType::kF32 || s.inputs[0].dtype == DType::kBF16; },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            if (s.inputs[0].dtype == DType::kF32) return std::make_unique<DropoutKernel<float>>(s);
            return std::make_unique<DropoutKernel<BF16>>(s);
          }};
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
  op.Fast(HighwayDropout());
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
  op.AddSample({{{DType::kF32, {3, 1000}}, {DType::kI32, {}}}, {{"p", 0.1}}});
  return {op};
}

}  // namespace mslua
