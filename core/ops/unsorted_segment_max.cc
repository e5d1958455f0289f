#include <algorithm>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/op/device_text.h"
#include "core/op/marks.h"
#include "core/ops/declare/indices.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// Rows [count, inner] and an index for each: results [rows, inner]. Where the results' rows are split over devices, a
// part begins at row `begin` of `all`; rows of other parts are left out.
struct Segments {
  int64_t count, inner, rows, begin, all;

  Segments(const Attrs& attrs, const TensorType& x, const TensorType& ids, const TensorType& y)
      : count(ids.elements()),
        inner(NumElements(absl::MakeConstSpan(x.shape).subspan(ids.shape.size()))),
        rows(y.shape[0]),
        begin(mark::kFirstRow.GetOr(attrs, 0)),
        all(mark::kRows.GetOr(attrs, rows)) {}
};

// What the largest, or the smallest, of no elements is.
template <bool kMax, class C>
C OfNone() {
  using Limits = std::numeric_limits<C>;
  if constexpr (Limits::has_infinity)
    return kMax ? -Limits::infinity() : Limits::infinity();
  else
    return kMax ? Limits::lowest() : Limits::max();
}

// Each thread owns a range of the results' rows.
template <bool kMax, class T>
void Join(const Segments& s, const T* x, const TensorView& ids, T* y) {
  using C = ComputeType<T>;
  // u8 is computed as an integer of another range.
  const T none = std::is_integral_v<T> ? OfNone<kMax, T>() : static_cast<T>(OfNone<kMax, C>());
  const int64_t row_elements = s.inner * (1 + s.count / std::max<int64_t>(1, s.rows));
  ParallelFor(s.rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, row_elements)),
              [&](int64_t begin, int64_t end) {
                std::fill(y + begin * s.inner, y + end * s.inner, none);
                for (int64_t i = 0; i < s.count; ++i) {
                  const int64_t row = IndexAt(ids, i) - s.begin;
                  if (row < begin || row >= end) continue;
                  T* to = y + row * s.inner;
                  const T* from = x + i * s.inner;
                  for (int64_t k = 0; k < s.inner; ++k) {
                    const C value = static_cast<C>(from[k]), best = static_cast<C>(to[k]);
                    if (value != value || (kMax ? value > best : value < best)) to[k] = from[k];
                  }
                }
              });
}

template <bool kMax>
Status JoinAll(const OpCall& c) {
  const Segments s(c.attrs, c.inputs[0].type, c.inputs[1].type, c.outputs[0].type);
  RETURN_IF_ERROR(CheckIndices(c.inputs[1], s.all, "segment_ids"));
  DispatchDType(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) Join<kMax>(s, c.inputs[0].as<T>(), c.inputs[1], c.outputs[0].as<T>());
  });
  return absl::OkStatus();
}

std::string NoneText(DType t, bool max) {
  if (IsFloat(t)) return max ? "-(C)INFINITY" : "(C)INFINITY";
  if (t == DType::kU8) return max ? "0" : "255";
  if (t == DType::kI64) return max ? "-9223372036854775807ll - 1" : "9223372036854775807ll";
  return max ? "-2147483647 - 1" : "2147483647";
}

DeviceProgram JoinOnDevice(const OpSpec& spec, bool max) {
  const Segments s(spec.attrs, spec.inputs[0], spec.inputs[1], spec.outputs[0]);
  const DType type = spec.inputs[0].dtype;
  DeviceProgram program;
  program.steps.push_back(CheckRange(1, s.count, 0, s.all));
  program.steps.push_back(EachElement(
      s.rows * s.inner,
      absl::StrCat("  typedef ", DeviceComputeType(type), " C;\n", Constant("inner", s.inner),
                   Constant("count", s.count), Constant("begin", s.begin), "  C best = ", NoneText(type, max), R"cuda(;
  const i64 row = i / inner + begin, k = i % inner;
  for (i64 j = 0; j < count; ++j) {
    if ((i64)Get(x1[j]) == row) best = )cuda",
                   max ? "Max<C>" : "Min<C>", R"cuda((best, Get(x0[j * inner + k]));
  }
  Set(y0[i], best);
)cuda")));
  return program;
}

// Rows that hold the extreme of their segment share its gradient evenly, as PyTorch's scatter_reduce and MindSpore have
// it.
std::vector<Value> JoinGrad(GradContext& c) {
  const DType own = c.g.TypeOf(c.x(0)).dtype, computed = ArithmeticType(own);
  const Value ids = c.x(1);
  const auto of_segment = [&](Value rows) { return c.g.Op("gather", {rows, ids}); };
  const Value holds = Cast(c.g, Elementwise(c.g, "equal", {c.x(0), of_segment(c.outputs[0])}), computed);
  const int64_t size = c.attrs.Int("num_segments");
  const Value count =
      Elementwise(c.g, "maximum", {c.g.Op("scatter_sum", {ids, holds}, {{"size", size}}), c.g.Constant(1, computed)});
  return {Cast(c.g, Mul(c.g, holds, of_segment(Div(c.g, Cast(c.g, c.dy[0], computed), count))), own), Value()};
}

// "*i t0 t1, *i -> v t0 t1"
std::string SegmentRule(absl::Span<const TensorType> in, const char* reduction) {
  std::string row;
  for (int64_t d = in[1].rank(); d < in[0].rank(); ++d) absl::StrAppend(&row, "t", d, " ");
  return absl::StrCat("*i ", row, ", *i -> v ", row, reduction);
}

Status CheckSegments(const Attrs& attrs, absl::Span<const TensorType> in) {
  const Shape &x = in[0].shape, &ids = in[1].shape;
  if (attrs.Int("num_segments") < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_segments is ", attrs.Int("num_segments"), ", expected 1 or more"));
  }
  if (ids.size() >= 1 && ids.size() <= x.size() && std::equal(ids.begin(), ids.end(), x.begin()))
    return absl::OkStatus();
  return absl::InvalidArgumentError("x should have the shape of segment_ids, and further dimensions or none");
}

void DeclareSegments(OpDef& op) {
  op.Input("x").Input("segment_ids", TypeClass::kIndex).NumericTypes();
  op.Required("num_segments", AttrKind::kInt, "rows of the result");
  op.Check(CheckSegments);
  // Every segment has a row: a gradient is compared with differences of results.
  op.AddSample({{{DType::kF32, {18, 2}}, {DType::kI32, {18}}}, {{"num_segments", int64_t{4}}}});
  op.AddSample({{{DType::kF32, {3, 14}}, {DType::kI64, {3, 14}}}, {{"num_segments", int64_t{6}}}, -1, 1, 6});
}

OpDef ExtremeOp(std::string name, const std::string& extreme, const char* of_none, const char* reduction) {
  OpDef op(std::move(name));
  op.Doc(absl::StrCat("The ", extreme,
                      " of the rows of x [ids.., ..] that segment_ids [ids..], from 0, has for each of "
                      "num_segments rows of the result: [num_segments, ..]. ",
                      of_none,
                      " where there is none; rows that are equal share the gradient evenly. An id outside "
                      "[0, num_segments) is an error."));
  DeclareSegments(op);
  op.Rule([reduction](const Attrs&, absl::Span<const TensorType> in) { return SegmentRule(in, reduction); });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    TensorType y{in[0].dtype, {a.Int("num_segments")}};
    y.shape.insert(y.shape.end(), in[0].shape.begin() + in[1].rank(), in[0].shape.end());
    return std::vector<TensorType>{y};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    Attrs attrs = c.attrs;
    mark::kFirstRow.Set(attrs, c.output_begin[0][0]);
    mark::kRows.Set(attrs, c.attrs.Int("num_segments"));
    return attrs.Set("num_segments", c.local_outputs[0].shape[0]);
  });
  op.Grad(JoinGrad);
  return op;
}

}  // namespace

MSLUA_OPERATOR(unsorted_segment_max) {
  OpDef max = ExtremeOp("unsorted_segment_max", "largest", "-inf, or the least integer,", "{max}");
  OpDef min = ExtremeOp("unsorted_segment_min", "smallest", "inf, or the largest integer,", "{min}");
  max.Class("UnsortedSegmentMax").Reference(JoinAll<true>);
  min.Class("UnsortedSegmentMin").Reference(JoinAll<false>);
  const auto all = [](const OpSpec& s) { return Segments(s.attrs, s.inputs[0], s.inputs[1], s.outputs[0]).all; };
  max.OnDevice([](const OpSpec& spec) { return JoinOnDevice(spec, true); }, IndexFault(1, all, "segment_ids"));
  min.OnDevice([](const OpSpec& spec) { return JoinOnDevice(spec, false); }, IndexFault(1, all, "segment_ids"));

  OpDef sum("unsorted_segment_sum");
  sum.Class("UnsortedSegmentSum")
      .Doc(
          "The sum of the rows of x [ids.., ..] that segment_ids [ids..], from 0, has for each of num_segments rows of "
          "the result: [num_segments, ..]. 0 where there is none. An id outside [0, num_segments) is an error.");
  DeclareSegments(sum);
  sum.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    return {g.Op("scatter_sum", {in[1], in[0]}, {{"size", attrs.Int("num_segments")}})};
  });
  return {max, min, sum};
}

}  // namespace mslua
