#include <algorithm>
#include <atomic>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/wrapping.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/simd/softmax.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/op/marks.h"
#include "core/ops/declare/indices.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread
constexpr int64_t kColumns = 256;  // side by side that one thread adds up

// A table [outer, rows, inner] and indices [outer, count, inner] into its rows, one for each element.
//
// Of a table whose rows are split over devices, a part knows where it begins (`_begin`) and how many rows there are in
// all (`_rows`): an index of another part's row gives zero, so that the parts' results add up to the whole.
struct Lanes {
  int64_t outer, rows, inner, count, begin, all;
  bool labels;

  Lanes(const Attrs& attrs, const Shape& table, const Shape& indices) {
    const int64_t axis = attrs.Int("axis");
    outer = NumElements(absl::MakeConstSpan(indices).subspan(0, axis));
    inner = NumElements(absl::MakeConstSpan(indices).subspan(axis + 1));
    rows = table[axis];
    count = indices[axis];
    begin = mark::kFirstRow.GetOr(attrs, 0);
    all = mark::kRows.GetOr(attrs, rows);
    labels = attrs.Has("labels") && attrs.Bool("labels");
  }
};

// DataLoss where an index is not in [0, all); of labels, the error that a loss gives for one, with its record.
Status Check(const Lanes& l, const TensorView& indices) {
  if (!l.labels) return CheckIndices(indices, l.all, "index");
  constexpr int64_t kIgnored = 0;  // no label is ignored: this one is a class
  return CheckLabels(indices.type.dtype, indices.data, indices.type.elements(), l.all, kIgnored);
}

Status Gather(const OpCall& c) {
  const Lanes l(c.attrs, c.inputs[0].type.shape, c.inputs[1].type.shape);
  const TensorView& indices = c.inputs[1];
  RETURN_IF_ERROR(Check(l, indices));
  DispatchDType(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = c.inputs[0].as<T>();
    T* y = c.outputs[0].as<T>();
    ParallelFor(indices.type.elements(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = IndexAt(indices, i) - l.begin, o = i / (l.count * l.inner);
        y[i] = row >= 0 && row < l.rows ? x[(o * l.rows + row) * l.inner + i % l.inner] : T{};
      }
    });
  });
  return absl::OkStatus();
}

// Each lane (one outer and one inner place) is one thread's, so that sums do not depend on threads.
template <class T>
void ScatterLanes(const Lanes& l, const TensorView& indices, const T* updates, T* y) {
  using C = ComputeType<T>;
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, l.rows + l.count));
  ParallelFor(l.outer * l.inner, grain, [&](int64_t begin, int64_t end) {
    std::vector<C> sums(static_cast<size_t>(l.rows));
    for (int64_t lane = begin; lane < end; ++lane) {
      const int64_t o = lane / l.inner, k = lane % l.inner;
      std::fill(sums.begin(), sums.end(), C{0});
      for (int64_t j = 0; j < l.count; ++j) {
        const int64_t at = (o * l.count + j) * l.inner + k;
        const int64_t row = IndexAt(indices, at) - l.begin;
        if (row < 0 || row >= l.rows) continue;
        C& sum = sums[static_cast<size_t>(row)];
        sum = Plus(sum, static_cast<C>(updates[at]));
      }
      for (int64_t r = 0; r < l.rows; ++r)
        y[(o * l.rows + r) * l.inner + k] = static_cast<T>(sums[static_cast<size_t>(r)]);
    }
  });
}

Status Scatter(const OpCall& c) {
  const Lanes l(c.attrs, c.outputs[0].type.shape, c.inputs[0].type.shape);
  RETURN_IF_ERROR(Check(l, c.inputs[0]));
  DispatchDType(c.outputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) ScatterLanes(l, c.inputs[0], c.inputs[1].as<T>(), c.outputs[0].as<T>());
  });
  return absl::OkStatus();
}

// The elements side by side below the axis: a number that the compiler knows where each index has one element.
template <bool kOne>
int64_t Inner(const Lanes& l) {
  return kOne ? 1 : l.inner;
}

// Indices are checked while they are read: an element of a wrong one is zero, or added nowhere, and then they are
// looked through for the first wrong one.
template <bool kOne, class Index, class T>
void GatherFrom(const Lanes& l, const Index* indices, const T* x, T* y, std::atomic<bool>& wrong) {
  const int64_t inner = Inner<kOne>(l), rows = l.rows, all = l.all, first = l.begin;
  // Elements side by side that one row of lanes has in both tensors.
  const int64_t run = kOne ? l.count : inner;
  ParallelFor(l.outer * l.count * inner, kGrain, [&](int64_t begin, int64_t end) {
    bool bad = false;
    for (int64_t i = begin; i < end;) {
      const int64_t stop = std::min(end, (i / run + 1) * run);
      const T* from = x + i / (l.count * inner) * rows * inner;
      for (int64_t k = i % inner; i < stop; ++i, k += kOne ? 0 : 1) {
        const int64_t at = indices[i], row = at - first;
        bad |= static_cast<uint64_t>(at) >= static_cast<uint64_t>(all);
        y[i] = static_cast<uint64_t>(row) < static_cast<uint64_t>(rows) ? from[row * inner + k] : T{};
      }
    }
    if (bad) wrong = true;
  });
}

// Columns of each outer place are shared out to threads, never the elements that are added to one.
template <bool kOne, class Index, class T>
void ScatterTo(const Lanes& l, const Index* indices, const T* updates, T* y, std::atomic<bool>& wrong) {
  const int64_t inner = Inner<kOne>(l), rows = l.rows, all = l.all, begin_row = l.begin;
  const int64_t width = std::min<int64_t>(inner, kColumns), blocks = (inner + width - 1) / std::max<int64_t>(1, width);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, (rows + l.count) * width));
  ParallelFor(l.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    bool bad = false;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t o = block / blocks, first = block % blocks * width, last = std::min(inner, first + width);
      T* to = y + o * rows * inner;
      if (blocks == 1) {
        std::fill_n(to, rows * inner, T{});
      } else {
        for (int64_t r = 0; r < rows; ++r) std::fill(to + r * inner + first, to + r * inner + last, T{});
      }
      for (int64_t j = 0; j < l.count; ++j) {
        const int64_t from = (o * l.count + j) * inner;
        for (int64_t k = first; k < last; ++k) {
          const int64_t at = indices[from + k], row = at - begin_row;
          bad |= static_cast<uint64_t>(at) >= static_cast<uint64_t>(all);
          if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(rows)) continue;
          to[row * inner + k] = Plus(to[row * inner + k], updates[from + k]);
        }
      }
    }
    if (bad) wrong = true;
  });
}

// f(one, Index{}, T{}) for the types of the indices and of the elements; one: whether each index has one element.
template <class F>
void DispatchAll(const Lanes& l, DType indices, DType elements, F f) {
  const auto columns = [&](auto index, auto zero) {
    if (l.inner == 1)
      f(std::true_type{}, index, zero);
    else
      f(std::false_type{}, index, zero);
  };
  DispatchDType(elements, [&](auto zero) {
    if (indices == DType::kI64)
      columns(int64_t{}, zero);
    else
      columns(int32_t{}, zero);
  });
}

// gather_d of x and indices, or scatter_d of indices and updates.
class LanesKernel : public Kernel {
 public:
  LanesKernel(const OpSpec& s, bool gathers)
      : l_(s.attrs, gathers ? s.inputs[0].shape : s.outputs[0].shape, s.inputs[gathers ? 1 : 0].shape),
        indices_(s.inputs[gathers ? 1 : 0]),
        dtype_(s.outputs[0].dtype),
        gathers_(gathers) {}

  Status Run(const Buffers& b) override {
    const void *indices = b.inputs[gathers_ ? 1 : 0], *x = b.inputs[gathers_ ? 0 : 1];
    std::atomic<bool> wrong{false};
    DispatchAll(l_, indices_.dtype, dtype_, [&](auto one, auto index, auto zero) {
      constexpr bool kOne = decltype(one)::value;
      using T = decltype(zero);
      const auto* at = static_cast<const decltype(index)*>(indices);
      if (gathers_)
        GatherFrom<kOne>(l_, at, static_cast<const T*>(x), static_cast<T*>(b.outputs[0]), wrong);
      else if constexpr (std::is_same_v<T, ComputeType<T>> && !std::is_same_v<T, bool>)
        ScatterTo<kOne>(l_, at, static_cast<const T*>(x), static_cast<T*>(b.outputs[0]), wrong);
    });
    if (!wrong) return absl::OkStatus();
    return Check(l_, {indices_, const_cast<void*>(indices)});
  }

 private:
  const Lanes l_;
  const TensorType indices_;
  const DType dtype_;
  const bool gathers_;
};

// Sums of 16-bit numbers are f32, for which only the reference has memory.
FastKernel OnePass(bool gathers) {
  return {"lanes",
          [gathers](const OpSpec& s) {
            const DType t = s.outputs[0].dtype;
            return gathers || (t != DType::kBF16 && t != DType::kF16 && t != DType::kBool);
          },
          [gathers](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<LanesKernel>(s, gathers);
          }};
}

std::string Sizes(const Lanes& l) {
  return absl::StrCat(Constant("rows", l.rows), Constant("inner", l.inner), Constant("count", l.count),
                      Constant("begin", l.begin));
}

DeviceProgram GatherOnDevice(const OpSpec& spec) {
  const Lanes l(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  DeviceProgram program;
  program.steps.push_back(CheckRange(1, spec.inputs[1].elements(), 0, l.all));
  program.steps.push_back(EachElement(spec.inputs[1].elements(),
                                      absl::StrCat(Sizes(l), "  typedef ", DeviceType(spec.inputs[0].dtype), R"cuda( T;
  const i64 row = (i64)Get(x1[i]) - begin, o = i / (count * inner);
  y0[i] = row >= 0 && row < rows ? x0[(o * rows + row) * inner + i % inner] : T{};
)cuda")));
  return program;
}

// The error of Check for an index that a kernel on a device has found.
Status GatherFault(const OpSpec& spec, const DeviceFault& fault) {
  const Lanes l(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape);
  if (l.labels) return WrongLabel(fault.at, spec.inputs[1].elements(), fault.value, l.all);
  return IndexFault(
      1, [&](const OpSpec&) { return l.all; }, "index")(spec, fault);
}

DeviceProgram ScatterOnDevice(const OpSpec& spec) {
  const Lanes l(spec.attrs, spec.outputs[0].shape, spec.inputs[0].shape);
  DeviceProgram program;
  program.steps.push_back(CheckRange(0, spec.inputs[0].elements(), 0, l.all));
  program.steps.push_back(EachElement(spec.outputs[0].elements(),
                                      absl::StrCat(Sizes(l), "  typedef ", DeviceComputeType(spec.outputs[0].dtype),
                                                   R"cuda( C;
  const i64 o = i / (rows * inner), row = i / inner % rows, k = i % inner;
  C sum = 0;
  for (i64 j = 0; j < count; ++j) {
    const i64 at = (o * count + j) * inner + k;
    if ((i64)Get(x0[at]) - begin == row) sum += (C)Get(x1[at]);
  }
  Set(y0[i], sum);
)cuda")));
  return program;
}

// "d0 i d2": the dimensions, with `name` at the axis.
std::string Dims(int64_t rank, int64_t axis, absl::string_view name) {
  std::string text;
  for (int64_t d = 0; d < rank; ++d) absl::StrAppend(&text, d == axis ? std::string(name) : absl::StrCat("d", d), " ");
  return text;
}

OpDef ScatterD() {
  OpDef op("scatter_d");
  op.Doc(
      "Updates added up along `axis` where `index`, of their shape, says: the inverse of gather_d. The result has "
      "`size` elements along the axis.");
  op.Input("index", TypeClass::kIndex).Input("updates").NumericTypes();
  op.Required("size", AttrKind::kInt, "elements of the result along the axis")
      .Attr("axis", AttrKind::kAxis, int64_t{0}, "the dimension that index counts in");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    if (in[0].shape != in[1].shape) return absl::InvalidArgumentError("index and updates should have one shape");
    if (a.Int("size") >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("size is ", a.Int("size"), ", expected no negative number"));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string i = Dims(in[0].rank(), a.Int("axis"), "i");
    return absl::StrCat(i, ", ", i, "-> ", Dims(in[0].rank(), a.Int("axis"), "v"));
  });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    TensorType y = in[1];
    y.shape[a.Int("axis")] = a.Int("size");
    return std::vector<TensorType>{y};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    const int64_t axis = c.attrs.Int("axis");
    Attrs attrs = WithPart(c.attrs, c.output_begin[0][axis], c.attrs.Int("size"));
    return attrs.Set("size", c.local_outputs[0].shape[axis]);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    return {Value(), c.g.Op("gather_d", {c.dy[0], c.x(0)}, {{"axis", c.attrs.Int("axis")}})};
  });
  op.Reference(Scatter);
  op.Fast(OnePass(false));
  op.OnDevice(
      ScatterOnDevice,
      IndexFault(
          0, [](const OpSpec& s) { return Lanes(s.attrs, s.outputs[0].shape, s.inputs[0].shape).all; }, "index"));
  op.AddSample({{{DType::kI32, {3, 2}}, {DType::kF32, {3, 2}}}, {{"size", int64_t{4}}}});
  op.AddSample({{{DType::kI64, {2, 3, 5}}, {DType::kF32, {2, 3, 5}}}, {{"size", int64_t{4}}, {"axis", int64_t{1}}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(gather_d) {
  OpDef op("gather_d");
  op.Class("GatherD").Doc(
      "Elements of x by their numbers along `axis`, which count from 0: y[i][j] = x[index[i][j]][j] where axis is the "
      "first of two dimensions. index has the dimensions of x and its sizes but along the axis; y has the shape of "
      "index. An index outside x is an error.");
  op.Input("x").Input("index", TypeClass::kIndex).AllTypes();
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the dimension that index counts in")
      .Attr("labels", AttrKind::kBool, false, "index has labels of records: an error names the record of a wrong one");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    Shape want = in[0].shape;
    if (in[1].shape.size() == want.size()) want[a.Int("axis")] = in[1].shape[a.Int("axis")];
    if (in[1].shape == want) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("index should have the shape of x in every dimension but ", a.Int("axis") + 1));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const int64_t rank = in[0].rank(), axis = a.Int("axis");
    const std::string i = Dims(rank, axis, "i");
    return absl::StrCat(Dims(rank, axis, "v"), ", ", i, "-> ", i);
  });
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{{in[0].dtype, in[1].shape}};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    const int64_t axis = c.attrs.Int("axis");
    return WithPart(c.attrs, c.input_begin[0][axis], c.global_inputs[0].shape[axis]);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    const int64_t axis = c.attrs.Int("axis");
    return {c.g.Op("scatter_d", {c.x(1), c.dy[0]}, {{"size", c.g.TypeOf(c.x(0)).shape[axis]}, {"axis", axis}}),
            Value()};
  });
  op.Reference(Gather);
  op.Fast(OnePass(true));
  op.OnDevice(GatherOnDevice, GatherFault);
  op.AddSample({{{DType::kF32, {3, 4}}, {DType::kI32, {3, 2}}}});
  op.AddSample({{{DType::kF32, {2, 4, 5}}, {DType::kI64, {2, 3, 5}}}, {{"axis", int64_t{1}}}});
  return {op, ScatterD()};
}

MSLUA_ONNX(gather_d) { c.Result(c.Op("GatherElements", {c.In(0), c.In(1)}, {{"axis", c.attrs().Int("axis")}})); }

}  // namespace mslua
