#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/wrapping.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/op/marks.h"
#include "core/ops/declare/indices.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// A table seen as [outer, rows, inner] and as many rows of it as there are indices: [outer, count, inner].
//
// Of a table whose rows are split over devices, a part knows where it begins (`_begin`) and how many rows there are in
// all (`_rows`): an index of another part's row gives zeros, so that the parts' results add up to the whole.
struct Rows {
  int64_t outer, rows, inner, count;
  int64_t begin, all;  // indices are below `all`

  Rows(const Attrs& attrs, const Shape& table, const TensorType& indices) {
    const int64_t axis = attrs.Int("axis");
    outer = NumElements(absl::MakeConstSpan(table).subspan(0, axis));
    rows = table[axis];
    inner = NumElements(absl::MakeConstSpan(table).subspan(axis + 1));
    count = indices.elements();
    begin = mark::kFirstRow.GetOr(attrs, 0);
    all = mark::kRows.GetOr(attrs, rows);
    if (attrs.Has("limit") && attrs.Int("limit") > 0) all = std::min(all, attrs.Int("limit"));
  }
};

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// The rows [begin, end) of the result, of `bytes` bytes each; kBytes: the same number, or 0.
template <int64_t kBytes>
void CopyRows(const Rows& r, const TensorView& indices, const char* table, int64_t bytes, int64_t begin, int64_t end,
              char* y) {
  const int64_t row_bytes = kBytes > 0 ? kBytes : bytes;
  int64_t i = begin % r.count;
  table += begin / r.count * r.rows * row_bytes;
  for (char *out = y + begin * row_bytes, *stop = y + end * row_bytes; out != stop; out += row_bytes) {
    const int64_t row = IndexAt(indices, i) - r.begin;
    if (row >= 0 && row < r.rows)
      std::memcpy(out, table + row * row_bytes, static_cast<size_t>(row_bytes));
    else
      std::memset(out, 0, static_cast<size_t>(row_bytes));
    if (++i < r.count) continue;
    i = 0;
    table += r.rows * row_bytes;
  }
}

Status GatherRows(const OpCall& c) {
  const Rows r(c.attrs, c.inputs[0].type.shape, c.inputs[1].type);
  RETURN_IF_ERROR(CheckIndices(c.inputs[1], r.all, "indices"));
  if (c.outputs[0].type.elements() == 0) return absl::OkStatus();
  const int64_t row_bytes = r.inner * SizeOf(c.inputs[0].type.dtype);
  const auto copy = row_bytes == 2   ? CopyRows<2>
                    : row_bytes == 4 ? CopyRows<4>
                    : row_bytes == 8 ? CopyRows<8>
                                     : CopyRows<0>;
  ParallelFor(r.outer * r.count, std::max<int64_t>(1, kGrain / r.inner), [&](int64_t begin, int64_t end) {
    copy(r, c.inputs[1], c.inputs[0].as<char>(), row_bytes, begin, end, c.outputs[0].as<char>());
  });
  return absl::OkStatus();
}

// Each thread owns a range of rows and adds to them in the order of the indices, so that sums do not depend on threads.
template <class T>
void AddRows(const Rows& r, const TensorView& indices, const T* updates, T* y, ComputeType<T>* sums) {
  using C = ComputeType<T>;
  const int64_t row_elements = r.inner * (1 + r.count / std::max<int64_t>(1, r.rows));  // made and added, on average
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, row_elements));
  ParallelFor(r.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t o = 0; o < r.outer; ++o) {
      C* table = sums + o * r.rows * r.inner;
      std::fill(table + begin * r.inner, table + end * r.inner, C{0});
      for (int64_t i = 0; i < r.count; ++i) {
        const int64_t row = IndexAt(indices, i) - r.begin;
        if (row < begin || row >= end) continue;
        C* to = table + row * r.inner;
        const T* from = updates + (o * r.count + i) * r.inner;
        for (int64_t k = 0; k < r.inner; ++k) to[k] = Plus(to[k], static_cast<C>(from[k]));
      }
      if constexpr (!std::is_same_v<T, C>) {
        T* out = y + o * r.rows * r.inner;
        for (int64_t k = begin * r.inner; k < end * r.inner; ++k) out[k] = static_cast<T>(table[k]);
      }
    }
  });
}

template <class T>
void ScatterRows(const Rows& r, const TensorView& indices, const T* updates, T* y, void* scratch) {
  if constexpr (std::is_same_v<T, ComputeType<T>>)
    AddRows<T>(r, indices, updates, y, y);
  else
    AddRows<T>(r, indices, updates, y, static_cast<float*>(scratch));
}

Status ScatterReference(const OpCall& c) {
  const Rows r(c.attrs, c.outputs[0].type.shape, c.inputs[0].type);
  RETURN_IF_ERROR(CheckIndices(c.inputs[0], r.all, "indices"));
  DispatchDType(c.outputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) {
      std::vector<float> scratch(std::is_same_v<T, ComputeType<T>> ? 0 : c.outputs[0].type.elements());
      ScatterRows(r, c.inputs[0], c.inputs[1].as<T>(), c.outputs[0].as<T>(), scratch.data());
    }
  });
  return absl::OkStatus();
}

// The same for the step, with the sums of 16-bit floats in planned memory.
class ScatterBF16 : public Kernel {
 public:
  explicit ScatterBF16(const OpSpec& s)
      : rows_(s.attrs, s.outputs[0].shape, s.inputs[0]), indices_(s.inputs[0]), elements_(s.outputs[0].elements()) {}
  Status Run(const Buffers& b) override {
    const TensorView indices{indices_, const_cast<void*>(b.inputs[0])};
    RETURN_IF_ERROR(CheckIndices(indices, rows_.all, "indices"));
    ScatterRows(rows_, indices, static_cast<const BF16*>(b.inputs[1]), static_cast<BF16*>(b.outputs[0]), b.scratch);
    return absl::OkStatus();
  }
  int64_t scratch_bytes() const override { return elements_ * static_cast<int64_t>(sizeof(float)); }

 private:
  const Rows rows_;
  const TensorType indices_;
  const int64_t elements_;
};

std::string Sizes(const Rows& r) {
  return absl::StrCat(Constant("rows", r.rows), Constant("inner", r.inner), Constant("count", r.count),
                      Constant("begin", r.begin));
}

DeviceProgram GatherOnDevice(const OpSpec& spec) {
  const Rows r(spec.attrs, spec.inputs[0].shape, spec.inputs[1]);
  DeviceProgram program;
  program.steps.push_back(CheckRange(1, r.count, 0, r.all));
  program.steps.push_back(EachElement(r.outer * r.count * r.inner,
                                      absl::StrCat(Sizes(r), "  typedef ", DeviceType(spec.inputs[0].dtype), R"cuda( T;
  const i64 t = i / inner, row = (i64)Get(x1[t % count]) - begin;
  y0[i] = row >= 0 && row < rows ? x0[(t / count * rows + row) * inner + i % inner] : T{};
)cuda")));
  return program;
}

// Every index finds the next one that is equal; the first of them adds up what the others name, in their order.
DeviceProgram ScatterOnDevice(const OpSpec& spec) {
  const Rows r(spec.attrs, spec.outputs[0].shape, spec.inputs[0]);
  const std::string sizes = absl::StrCat(Sizes(r), "  int* const next = (int*)scratch;\n");
  DeviceProgram program;
  program.scratch_bytes = r.count * static_cast<int64_t>(sizeof(int32_t));
  program.steps.push_back(CheckRange(0, r.count, 0, r.all));
  program.steps.push_back(EachElement(spec.outputs[0].elements(), "  Set(y0[i], 0);"));
  program.steps.push_back(EachElement(r.count, absl::StrCat(sizes, R"cuda(
  const i64 own = Get(x0[i]);
  i64 other = (i64)i - 1;
  while (other >= 0 && Get(x0[other]) != own) --other;
  const bool first = other < 0;
  other = (i64)i + 1;
  while (other < count && Get(x0[other]) != own) ++other;
  // Negative where it is not the first; `other` is 1 or more.
  next[i] = first ? (int)other : -(int)other;
)cuda")));
  program.steps.push_back(
      EachElement(r.outer * r.count * r.inner,
                  absl::StrCat(sizes, "  typedef ", DeviceComputeType(spec.outputs[0].dtype), R"cuda( C;
  const i64 o = i / (count * inner), at = i / inner % count, k = i % inner, row = (i64)Get(x0[at]) - begin;
  if (next[at] < 0 || row < 0 || row >= rows) continue;
  C sum = Get(x1[i]);
  for (i64 other = next[at]; other < count; other = -next[other]) sum += (C)Get(x1[(o * count + other) * inner + k]);
  Set(y0[(o * rows + row) * inner + k], sum);
)cuda")));
  return program;
}

// "l0 v r2": the table's dimensions with `row` at the axis; "l0 i0 i1 r2": the same with the indices' there.
std::string TableDims(int64_t rank, int64_t axis, bool with_indices) {
  std::string text;
  for (int64_t d = 0; d < rank; ++d)
    absl::StrAppend(&text, d == axis ? (with_indices ? "*i" : "v") : absl::StrCat("t", d), " ");
  return text;
}

OpDef ScatterSum() {
  OpDef op("scatter_sum");
  op.Doc(
      "Rows of `updates` added up where `indices` says: the inverse of gather. Result row v of [.., size, ..] is the "
      "sum of the updates with index v.");
  op.Input("indices", TypeClass::kIndex).Input("updates").NumericTypes();
  op.Required("size", AttrKind::kInt, "rows of the result")
      .Attr("axis", AttrKind::kInt, int64_t{0}, "the rows' dimension");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    const int64_t axis = a.Int("axis"), rank = in[1].rank() - in[0].rank() + 1;
    if (a.Int("size") < 0)
      return absl::InvalidArgumentError(absl::StrCat("size is ", a.Int("size"), ", expected no negative number"));
    if (axis >= 0 && axis < rank) return absl::OkStatus();
    const int64_t given = axis < 0 ? axis : axis + 1;  // users count from 1
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", given, " is out of range, expected 1 to ", rank, ", the dimensions of the result"));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const int64_t rank = in[1].rank() - in[0].rank() + 1;
    return absl::StrCat("*i, ", TableDims(rank, a.Int("axis"), true), "-> ", TableDims(rank, a.Int("axis"), false));
  });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const Shape &i = in[0].shape, &u = in[1].shape;
    const int64_t axis = a.Int("axis");
    if (!std::equal(i.begin(), i.end(), u.begin() + axis)) {
      return absl::InvalidArgumentError(absl::StrCat("updates should have the indices' shape ",
                                                     ToString(absl::MakeConstSpan(i)), " at dimension ", axis + 1));
    }
    TensorType y{in[1].dtype, Shape(u.begin(), u.begin() + axis)};
    y.shape.push_back(a.Int("size"));
    y.shape.insert(y.shape.end(), u.begin() + axis + i.size(), u.end());
    return std::vector<TensorType>{y};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    const int64_t axis = c.attrs.Int("axis");
    Attrs attrs = WithPart(c.attrs, c.output_begin[0][axis], c.attrs.Int("size"));
    return attrs.Set("size", c.local_outputs[0].shape[axis]);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    return {Value(), c.g.Op("gather", {c.dy[0], c.x(0)}, {{"axis", c.attrs.Int("axis")}})};
  });
  op.Reference(ScatterReference);
  op.OnDevice(ScatterOnDevice,
              IndexFault(
                  0, [](const OpSpec& s) { return Rows(s.attrs, s.outputs[0].shape, s.inputs[0]).all; }, "indices"));
  op.Fast({"bf16", [](const OpSpec& s) { return s.outputs[0].dtype == DType::kBF16; },
           [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
             return std::unique_ptr<Kernel>(new ScatterBF16(s));
           }});
  op.AddSample({{{DType::kI32, {3, 2}}, {DType::kF32, {3, 2, 5}}}, {{"size", int64_t{4}}}});
  op.AddSample({{{DType::kI64, {3}}, {DType::kF32, {2, 3, 5}}}, {{"size", int64_t{4}}, {"axis", int64_t{1}}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(gather) {
  OpDef op("gather");
  op.Class("Gather").Doc(
      "Rows of x [v, ..] at `indices` [..] from 0, along `axis`: an embedding gives [indices.., ..]. An index outside "
      "[0, v) is an error.");
  op.Input("x").Input("indices", TypeClass::kIndex).AllTypes();
  op.Attr("axis", AttrKind::kAxis, int64_t{0}, "the rows' dimension")
      .Attr("limit", AttrKind::kInt, int64_t{0}, "indices are below it too, where it is above 0");
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const int64_t rank = in[0].rank(), axis = a.Int("axis");
    return absl::StrCat(TableDims(rank, axis, false), ", *i -> ", TableDims(rank, axis, true));
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    const int64_t axis = c.attrs.Int("axis");
    return WithPart(c.attrs, c.input_begin[0][axis], c.global_inputs[0].shape[axis]);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    const int64_t axis = c.attrs.Int("axis");
    return {c.g.Op("scatter_sum", {c.x(1), c.dy[0]}, {{"size", c.g.TypeOf(c.x(0)).shape[axis]}, {"axis", axis}}),
            Value()};
  });
  op.Reference(GatherRows);
  op.OnDevice(GatherOnDevice,
              IndexFault(
                  1, [](const OpSpec& s) { return Rows(s.attrs, s.inputs[0].shape, s.inputs[1]).all; }, "indices"));
  op.AddSample({{{DType::kF32, {4, 5}}, {DType::kI32, {3, 2}}}});
  op.AddSample({{{DType::kF32, {2, 4, 3}}, {DType::kI64, {5}}}, {{"axis", int64_t{1}}}});

  OpDef add("scatter_add");
  add.Class("ScatterAdd")
      .Doc("x [v, ..] with rows of `updates` [indices.., ..] added where `indices` [..], from 0, says.");
  add.Input("x").Input("indices", TypeClass::kIndex).Input("updates").NumericTypes();
  add.Check([](const Attrs&, absl::Span<const TensorType> in) -> Status {
    Shape want = in[1].shape;
    if (in[0].rank() > 0) want.insert(want.end(), in[0].shape.begin() + 1, in[0].shape.end());
    if (in[0].rank() > 0 && in[2].shape == want) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("updates should be ", ToString(absl::MakeConstSpan(want))));
  });
  add.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs&) -> std::vector<Value> {
    return {Add(g, in[0], g.Op("scatter_sum", {in[1], in[2]}, {{"size", g.TypeOf(in[0]).shape[0]}}))};
  });
  add.AddSample({{{DType::kF32, {4, 5}}, {DType::kI32, {3}}, {DType::kF32, {3, 5}}}});
  return {op, ScatterSum(), add};
}

MSLUA_ONNX(gather) { c.Result(c.Op("Gather", {c.In(0), c.In(1)}, {{"axis", c.attrs().Int("axis")}})); }

// ScatterND adds to rows of the first dimension.
MSLUA_ONNX(scatter_sum) {
  const int64_t axis = c.attrs().Int("axis"), rank = c.TypeIn(1).rank(), indexed = c.TypeIn(0).rank();
  std::string updates = c.In(1);
  std::vector<onnx::Dim> dims = c.DimsOut(0, {"size"});
  std::vector<int64_t> forth, back;
  if (axis > 0) {
    for (int64_t d = 0; d < rank; ++d) forth.push_back(d < indexed ? axis + d : d < indexed + axis ? d - indexed : d);
    for (int64_t d = 0; d < c.TypeOut().rank(); ++d) back.push_back(d < axis ? d + 1 : d == axis ? 0 : d);
    updates = c.Transpose(updates, forth);
    std::rotate(dims.begin(), dims.begin() + axis, dims.begin() + axis + 1);
  }
  const std::string zeros = c.Op("Expand", {c.Number(0, c.TypeOut().dtype), c.Shape(dims)});
  const std::string indices = c.Op("Unsqueeze", {c.Cast(c.In(0), DType::kI64), c.Ints({-1})});
  const std::string sums = c.Op("ScatterND", {zeros, indices, updates}, {{"reduction", std::string("add")}});
  c.Result(axis > 0 ? c.Transpose(sums, back) : sums);
}

}  // namespace mslua
