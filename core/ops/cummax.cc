#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/kernels/simd/softmax.h"
#include "core/op/device_text.h"
#include "core/ops/declare/along_axis.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

template <bool kMax, class T>
void Search(const OpCall& c) {
  using C = ComputeType<T>;
  const AxisView v = AxisView::Of(c.inputs[0].type.shape, c.attrs.Int("axis"));
  const T* x = c.inputs[0].as<T>();
  T* values = c.outputs[0].as<T>();
  int32_t* indices = c.outputs[1].as<int32_t>();
  ParallelFor(v.outer * v.inner, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, v.size)),
              [&](int64_t begin, int64_t end) {
                for (int64_t lane = begin; lane < end; ++lane) {
                  const int64_t first = lane / v.inner * v.size * v.inner + lane % v.inner;
                  C best{};
                  int64_t place = 0;
                  for (int64_t k = 0; k < v.size; ++k) {
                    const C value = static_cast<C>(x[first + k * v.inner]);
                    const bool better = value != value || (best == best && (kMax ? value >= best : value <= best));
                    if (k == 0 || better) best = value, place = k;
                    values[first + k * v.inner] = x[first + place * v.inner];
                    indices[first + k * v.inner] = static_cast<int32_t>(place);
                  }
                }
              });
}

template <bool kMax>
Status SearchAll(const OpCall& c) {
  DispatchDType(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) Search<kMax, T>(c);
  });
  return absl::OkStatus();
}

DeviceProgram SearchOnDevice(const OpSpec& spec, bool max) {
  const AxisView v = AxisView::Of(spec.inputs[0].shape, spec.attrs.Int("axis"));
  return OneStep(
      EachElement(v.outer * v.inner, absl::StrCat("  typedef ", DeviceComputeType(spec.inputs[0].dtype), " C;\n",
                                                  Constant("size", v.size), Constant("inner", v.inner), R"cuda(
  const i64 first = i / inner * size * inner + i % inner;
  C best = 0;
  i64 place = 0;
  for (i64 k = 0; k < size; ++k) {
    const C value = Get(x0[first + k * inner]);
    if (k == 0 || value != value || (best == best && value )cuda",
                                                  max ? ">=" : "<=", R"cuda( best)) best = value, place = k;
    y0[first + k * inner] = x0[first + place * inner];
    y1[first + k * inner] = (int)place;
  }
)cuda")));
}

OpDef SearchOp(std::string name, const std::string& extreme) {
  OpDef op(std::move(name));
  op.Doc(absl::StrCat("The ", extreme,
                      " of the elements along `axis` up to each one, and where it is, counted from 0 "
                      "(i32): the last one at ties, the last NaN where there is one. The gradient goes there."));
  op.Input("x").NumericTypes().Outputs({"values", "indices"});
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the dimension to go along");
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string dims = DimsAlongAxis(a, in[0]);
    return absl::StrCat(dims, "-> ", dims, ", ", dims);
  });
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{in[0], {DType::kI32, in[0].shape}};
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    if (!c.dy[0].valid()) return {Value()};
    const int64_t axis = c.attrs.Int("axis");
    return {c.g.Op("scatter_d", {c.outputs[1], c.dy[0]}, {{"size", c.g.TypeOf(c.x(0)).shape[axis]}, {"axis", axis}})};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {2, 4, 3}}}, {{"axis", int64_t{1}}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(cummax) {
  OpDef max = SearchOp("cummax", "largest"), min = SearchOp("cummin", "smallest");
  max.Class("Cummax").Reference(SearchAll<true>);
  min.Class("Cummin").Reference(SearchAll<false>);
  max.OnDevice([](const OpSpec& spec) { return SearchOnDevice(spec, true); });
  min.OnDevice([](const OpSpec& spec) { return SearchOnDevice(spec, false); });
  return {max, min};
}

}  // namespace mslua
