#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/declare/indices.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// x [n, .., s, ..] seen as [n, outer, s, inner], a slice of it as [n, outer, t, inner].
struct Slices {
  int64_t rows, outer, s, t, inner;
  Slices(int64_t axis, const Shape& x, const Shape& part)
      : rows(x[0]),
        outer(NumElements(absl::MakeConstSpan(x).subspan(1, axis - 1))),
        s(x[axis]),
        t(part[axis]),
        inner(NumElements(absl::MakeConstSpan(x).subspan(axis + 1))) {}
  // Where a slice may begin: [0, places).
  int64_t places() const { return s - t + 1; }
};

// Between slices of `whole` and `part`, a row of the batch each from its own start.
Status CopySlices(const Slices& z, int64_t size, const TensorView& starts, char* whole, char* part, bool into) {
  RETURN_IF_ERROR(CheckIndices(starts, z.places(), "start"));
  const size_t bytes = static_cast<size_t>(z.t * z.inner * size);
  for (int64_t i = 0; i < z.rows * z.outer; ++i) {
    char* w = whole + (i * z.s + IndexAt(starts, i / std::max<int64_t>(1, z.outer))) * z.inner * size;
    char* p = part + i * static_cast<int64_t>(bytes);
    std::memcpy(into ? w : p, into ? p : w, bytes);
  }
  return absl::OkStatus();
}

Slices SlicesOfUpdate(const OpSpec& spec) {
  return Slices(spec.attrs.Int("axis"), spec.inputs[0].shape, spec.inputs[1].shape);
}
Slices SlicesOfSlice(const OpSpec& spec) {
  return Slices(spec.attrs.Int("axis"), spec.inputs[0].shape, spec.outputs[0].shape);
}

std::string Sizes(const Slices& z) {
  return absl::StrCat(Constant("outer", z.outer), Constant("s", z.s), Constant("t", z.t), Constant("inner", z.inner));
}

DeviceProgram UpdateOnDevice(const OpSpec& spec) {
  const Slices z = SlicesOfUpdate(spec);
  DeviceProgram program;
  program.steps.push_back(CheckRange(2, z.rows, 0, z.places()));
  program.steps.push_back(EachElement(spec.outputs[0].elements(), absl::StrCat(Sizes(z), R"cuda(
  const i64 lane = (i64)i / (s * inner), at = (i64)i / inner % s - (i64)Get(x2[lane / outer]);
  y0[i] = at >= 0 && at < t ? x1[(lane * t + at) * inner + (i64)i % inner] : x0[i];
)cuda")));
  return program;
}

DeviceProgram SliceOnDevice(const OpSpec& spec) {
  const Slices z = SlicesOfSlice(spec);
  DeviceProgram program;
  program.steps.push_back(CheckRange(1, z.rows, 0, z.places()));
  program.steps.push_back(EachElement(spec.outputs[0].elements(), absl::StrCat(Sizes(z), R"cuda(
  const i64 lane = (i64)i / (t * inner), first = (i64)Get(x1[lane / outer]), at = (i64)i / inner % t + first;
  if (first < 0 || first + t > s) continue;
  y0[i] = x0[(lane * s + at) * inner + (i64)i % inner];
)cuda")));
  return program;
}

Status CheckTypes(const Attrs& attrs, const TensorType& x, const TensorType& starts) {
  const int64_t axis = attrs.Int("axis");
  if (x.rank() < 2 || axis < 1 || axis >= x.rank())
    return absl::InvalidArgumentError("expected x [n, ..] of 2 or more dimensions, and an axis behind the first");
  if (starts.rank() != 1 || starts.shape[0] != x.shape[0])
    return absl::InvalidArgumentError(absl::StrCat("start should be [", x.shape[0], "], a place for each row of x"));
  return absl::OkStatus();
}

// "n x1 !s x3": the dimensions of x with `letter` at the axis.
std::string Dims(int64_t rank, int64_t axis, absl::string_view letter) {
  std::string text;
  for (int64_t d = 0; d < rank; ++d)
    absl::StrAppend(&text, d == 0 ? "" : " ", d == axis ? absl::StrCat("!", letter) : absl::StrCat("x", d));
  return text;
}

OpDef SliceAt() {
  OpDef op("slice_at");
  op.Doc("`size` elements of x [n, ..] along `axis`, of row i from start[i] on, which is known when the step runs.");
  op.Input("x").AllTypes().Input("start", TypeClass::kIndex);
  op.Required("size", AttrKind::kInt, "how many").Attr("axis", AttrKind::kAxis, int64_t{1}, "not the first");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    RETURN_IF_ERROR(CheckTypes(a, in[0], in[1]));
    const int64_t size = a.Int("size"), n = in[0].shape[a.Int("axis")];
    if (size >= 1 && size <= n) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("size is ", size, ", expected 1 to ", n));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const int64_t r = in[0].rank(), axis = a.Int("axis");
    return absl::StrCat(Dims(r, axis, "s"), ", x0 -> ", Dims(r, axis, "t"));
  });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    TensorType y = in[0];
    y.shape[a.Int("axis")] = a.Int("size");
    return std::vector<TensorType>{y};
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    return {c.g.Op("update_slice", {ZerosLike(c.g, c.x(0)), c.dy[0], c.x(1)}, {{"axis", c.attrs.Int("axis")}}),
            Value()};
  });
  op.Reference([](const OpCall& c) {
    const Slices z(c.attrs.Int("axis"), c.inputs[0].type.shape, c.outputs[0].type.shape);
    return CopySlices(z, SizeOf(c.inputs[0].type.dtype), c.inputs[1], c.inputs[0].as<char>(), c.outputs[0].as<char>(),
                      false);
  });
  op.OnDevice(SliceOnDevice, IndexFault(
                                 1, [](const OpSpec& s) { return SlicesOfSlice(s).places(); }, "start"));
  op.AddSample({{{DType::kF32, {2, 7, 3}}, {DType::kI32, {2}}}, {{"size", int64_t{3}}}});
  op.AddSample({{{DType::kF32, {3, 2, 6}}, {DType::kI64, {3}}}, {{"size", int64_t{2}}, {"axis", int64_t{2}}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(update_slice) {
  OpDef op("update_slice");
  op.Class("UpdateSlice")
      .Doc(
          "x [n, ..] with `updates` in the place of as many elements along `axis`, in row i from start[i] on, which is "
          "known when the step runs. Where x is not needed any more it is changed in place, as generation "
          "does with its keys and values. A slice that does not fit is an error.");
  op.Input("x").AllTypes().Input("updates").Input("start", TypeClass::kIndex);
  op.Attr("axis", AttrKind::kAxis, int64_t{1}, "not the first");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    RETURN_IF_ERROR(CheckTypes(a, in[0], in[2]));
    Shape want = in[0].shape;
    const size_t axis = static_cast<size_t>(a.Int("axis"));
    if (in[1].shape.size() == want.size()) want[axis] = in[1].shape[axis];
    if (in[1].shape == want && want[axis] <= in[0].shape[axis]) return absl::OkStatus();
    return absl::InvalidArgumentError("updates should have the shape of x, with no more elements along the axis");
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const int64_t r = in[0].rank(), axis = a.Int("axis");
    return absl::StrCat(Dims(r, axis, "s"), ", ", Dims(r, axis, "t"), ", x0 -> ", Dims(r, axis, "s"));
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    const int64_t axis = c.attrs.Int("axis");
    const Value zeros = ZerosLike(c.g, c.x(1));
    return {c.g.Op("update_slice", {c.dy[0], zeros, c.x(2)}, {{"axis", axis}}),
            c.g.Op("slice_at", {c.dy[0], c.x(2)}, {{"size", c.g.TypeOf(c.x(1)).shape[axis]}, {"axis", axis}}), Value()};
  });
  op.Reference([](const OpCall& c) -> Status {
    const Slices z(c.attrs.Int("axis"), c.inputs[0].type.shape, c.inputs[1].type.shape);
    if (c.outputs[0].data != c.inputs[0].data)
      std::memcpy(c.outputs[0].data, c.inputs[0].data, static_cast<size_t>(c.inputs[0].type.bytes()));
    return CopySlices(z, SizeOf(c.inputs[0].type.dtype), c.inputs[2], c.outputs[0].as<char>(), c.inputs[1].as<char>(),
                      true);
  });
  op.OnDevice(UpdateOnDevice, IndexFault(
                                  2, [](const OpSpec& s) { return SlicesOfUpdate(s).places(); }, "start"));
  op.InPlace(0, 0);
  op.AddSample({{{DType::kF32, {2, 7, 3}}, {DType::kF32, {2, 3, 3}}, {DType::kI32, {2}}}});
  op.AddSample({{{DType::kF32, {3, 2, 6}}, {DType::kF32, {3, 2, 1}}, {DType::kI64, {3}}}, {{"axis", int64_t{2}}}});
  return {op, SliceAt()};
}

namespace {

// The places along the axis of a slice's elements, i64 of the slice's `shape`.
std::string PlacesOf(onnx::Lowering& c, size_t starts, int64_t size, const std::string& shape) {
  const auto rank = static_cast<size_t>(c.TypeIn(0).rank()), axis = static_cast<size_t>(c.attrs().Int("axis"));
  std::vector<int64_t> rows(rank, 1);
  rows[0] = -1;
  TensorType steps{DType::kI64, Shape(rank, 1)};
  steps.shape[axis] = size;
  std::vector<int64_t> values(static_cast<size_t>(size));
  std::iota(values.begin(), values.end(), 0);
  const std::string first = c.Op("Reshape", {c.Cast(c.In(starts), DType::kI64), c.Ints(rows)});
  const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return c.Op("Expand", {c.Op("Add", {first, c.Tensor(steps, bytes)}), shape});
}

}  // namespace

MSLUA_ONNX(slice_at) {
  const std::string places = PlacesOf(c, 1, c.attrs().Int("size"), c.Shape(c.DimsOut(0)));
  c.Result(c.Op("GatherElements", {c.In(0), places}, {{"axis", c.attrs().Int("axis")}}));
}

MSLUA_ONNX(update_slice) {
  const int64_t axis = c.attrs().Int("axis");
  const std::string places = PlacesOf(c, 2, c.TypeIn(1).shape[static_cast<size_t>(axis)], c.Op("Shape", {c.In(1)}));
  c.Result(c.Op("ScatterElements", {c.In(0), places, c.In(1)}, {{"axis", axis}}));
}

}  // namespace mslua
