#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
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

// The result as runs: the innermost dimensions of one kind are a run, those of the other kind around them make runs of
// one source or of neighbours, and the rest is walked through.
template <class T>
class CopyRuns : public Kernel {
 public:
  explicit CopyRuns(const OpSpec& s) {
    const Shape &from = s.inputs[0].shape, &to = s.outputs[0].shape;
    const size_t lead = to.size() - from.size();
    std::vector<bool> repeats;
    for (size_t d = to.size(); d-- > 0;) {
      const bool repeat = d < lead || (from[d - lead] == 1 && to[d] != 1);
      if (to[d] == 1) continue;
      if (!repeats.empty() && repeats.back() == repeat) {
        sizes_.back() *= to[d];
      } else {
        sizes_.push_back(to[d]);
        repeats.push_back(repeat);
      }
    }
    while (sizes_.size() < 2) sizes_.push_back(1), repeats.push_back(repeats.empty() || !repeats.back());
    fills_ = repeats[0];
    int64_t stride = 1;
    for (size_t k = 0; k < sizes_.size(); ++k) {
      strides_.push_back(repeats[k] ? 0 : stride);
      if (!repeats[k]) stride *= sizes_[k];
    }
    runs_ = s.outputs[0].elements() / std::max<int64_t>(1, sizes_[0]);
  }

  Status Run(const Buffers& b) override {
    constexpr int64_t kGrain = 16384;  // elements that are worth a thread
    const T* x = static_cast<const T*>(b.inputs[0]);
    T* y = static_cast<T*>(b.outputs[0]);
    const int64_t n = sizes_[0];
    ParallelFor(runs_, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
      const T* from = nullptr;
      for (int64_t run = begin, inner = begin % sizes_[1]; run < end; ++run) {
        if (from == nullptr) from = x + SourceOf(run / sizes_[1]);
        const T* source = from + inner * strides_[1];
        if (fills_)
          std::fill(y + run * n, y + (run + 1) * n, *source);
        else
          std::memcpy(y + run * n, source, static_cast<size_t>(n) * sizeof(T));
        if (++inner == sizes_[1]) inner = 0, from = nullptr;
      }
    });
    return absl::OkStatus();
  }

 private:
  // Where place `outer` of the dimensions around the runs begins in x.
  int64_t SourceOf(int64_t outer) const {
    int64_t at = 0;
    for (size_t k = 2; k < sizes_.size(); ++k) {
      at += outer % sizes_[k] * strides_[k];
      outer /= sizes_[k];
    }
    return at;
  }

  std::vector<int64_t> sizes_, strides_;  // from the innermost; kinds alternate
  bool fills_ = false;                    // the innermost repeat one element
  int64_t runs_ = 0;
};

FastKernel Runs() {
  return {"runs", [](const OpSpec& s) { return s.outputs[0].elements() > 0; },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            switch (SizeOf(s.inputs[0].dtype)) {
              case 1:
                return std::make_unique<CopyRuns<uint8_t>>(s);
              case 2:
                return std::make_unique<CopyRuns<uint16_t>>(s);
              case 4:
                return std::make_unique<CopyRuns<uint32_t>>(s);
              default:
                return std::make_unique<CopyRuns<uint64_t>>(s);
            }
          }};
}

}  // namespace

MSLUA_OPERATOR(broadcast_to) {
  OpDef op("broadcast_to");
  op.Class("BroadcastTo").Doc("Repeats x along dimensions of size 1, and new leading ones, to `shape`.");
  op.Input("x").AllTypes().Required("shape", AttrKind::kInts, "the result's shape");
  op.Rule(BroadcastRule);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const auto& shape = a.Ints("shape");
    if (std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 0; })) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape is ", ToString(absl::MakeConstSpan(shape)), ", expected no negative size"));
    }
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
  op.Reference([](const OpCall& c) { return EvaluateElementwise(CopyProgram(), c.inputs, c.outputs); });
  op.Fast(Runs());
  op.OnDevice([](const OpSpec& spec) {
    const std::string from = BroadcastIndex("i", spec.outputs[0].shape, spec.inputs[0].shape);
    return OneStep(EachElement(spec.outputs[0].elements(), absl::StrCat("  y0[i] = x0[", from, "];")));
  });
  op.AddSample({{{DType::kF32, {3, 1}}}, {{"shape", std::vector<int64_t>{2, 3, 4}}}});
  op.AddSample({{{DType::kF32, {}}}, {{"shape", std::vector<int64_t>{5}}}});
  op.AddSample({{{DType::kF32, {2, 1, 3, 1}}}, {{"shape", std::vector<int64_t>{2, 4, 3, 5}}}});
  return {op};
}

MSLUA_ONNX(broadcast_to) { c.Result(c.Op("Expand", {c.In(0), c.Shape(c.DimsOut(0, {"shape"}))})); }

}  // namespace mslua
