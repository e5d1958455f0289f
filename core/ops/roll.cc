#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// How far each dimension moves towards its end, at least 0 and below its size.
Shape ShiftsOf(const Attrs& attrs, const Shape& shape) {
  const auto &shifts = attrs.Ints("shift"), &axes = attrs.Ints("axis");
  Shape moves(shape.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto d = static_cast<size_t>(axes[i]);
    const int64_t n = shape[d];
    if (n > 0) moves[d] = (shifts[i] % n + n) % n;
  }
  return moves;
}

// A block for each choice of a dimension's first elements, which move to its end, or of the others.
Status RollReference(const OpCall& c) {
  const Shape& shape = c.inputs[0].type.shape;
  const Shape shifts = ShiftsOf(c.attrs, shape), strides = RowMajorStrides(shape);
  const int64_t size = SizeOf(c.inputs[0].type.dtype);
  std::vector<size_t> moved;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shifts[d] != 0) moved.push_back(d);
  }
  for (uint64_t choice = 0; choice < uint64_t{1} << moved.size(); ++choice) {
    Shape block = shape;
    int64_t from = 0, to = 0;
    for (size_t i = 0; i < moved.size(); ++i) {
      const size_t d = moved[i];
      const int64_t stay = shape[d] - shifts[d];
      const bool wraps = choice >> i & 1;
      block[d] = wraps ? shifts[d] : stay;
      (wraps ? from : to) += (wraps ? stay : shifts[d]) * strides[d];
    }
    StridedCopy(size, block, c.inputs[0].as<char>() + from * size, strides, c.outputs[0].as<char>() + to * size,
                strides);
  }
  return absl::OkStatus();
}

DeviceProgram RollOnDevice(const OpSpec& spec) {
  const Shape& shape = spec.outputs[0].shape;
  const Shape shifts = ShiftsOf(spec.attrs, shape), strides = RowMajorStrides(shape);
  std::string from = "0";
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t n = std::max<int64_t>(1, shape[d]), stride = std::max<int64_t>(1, strides[d]);
    absl::StrAppend(&from, " + ((i64)i / ", stride, " + ", n - shifts[d], ") % ", n, " * ", stride);
  }
  return OneStep(EachElement(spec.outputs[0].elements(), absl::StrCat("  y0[i] = x0[", from, "];")));
}

}  // namespace

MSLUA_OPERATOR(roll) {
  OpDef op("roll");
  op.Class("Roll").Doc(
      "x shifted along each of `axis` by as many places as `shift` says, towards the end; what leaves there comes in "
      "at the beginning.");
  op.Input("x").AllTypes();
  op.Required("shift", AttrKind::kInts, "places for each axis; negative ones shift towards the beginning")
      .Required("axis", AttrKind::kAxes, "the axes, as many as there are shifts");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    const size_t shifts = a.Ints("shift").size(), axes = a.Ints("axis").size();
    if (shifts == axes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("shift has ", shifts, " numbers and axis ", axes, ", expected as many of both"));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const auto& axes = a.Ints("axis");
    std::string dims;
    for (int64_t d = 0; d < in[0].rank(); ++d)
      absl::StrAppend(&dims, std::count(axes.begin(), axes.end(), d) > 0 ? "!d" : "d", d, " ");
    return absl::StrCat(dims, "-> ", dims);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    const Shape shape = c.g.TypeOf(c.x(0)).shape;
    const auto& axes = c.attrs.Ints("axis");
    std::vector<int64_t> back;
    for (size_t i = 0; i < axes.size(); ++i)
      back.push_back(-(c.attrs.Ints("shift")[i] % std::max<int64_t>(1, shape[static_cast<size_t>(axes[i])])));
    return {c.g.Op("roll", {c.dy[0]}, {{"shift", back}, {"axis", axes}})};
  });
  op.Reference(RollReference).OnDevice(RollOnDevice);
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"shift", Ints{2}}, {"axis", Ints{1}}}});
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"shift", Ints{-1, 7}}, {"axis", Ints{0, 1}}}});
  op.AddSample({{{DType::kF32, {2, 3, 4}}}, {{"shift", Ints{1, 1, 1}}, {"axis", Ints{2, 0, 1}}}});
  return {op};
}

MSLUA_ONNX(roll) {
  const Shape shifts = ShiftsOf(c.attrs(), c.TypeIn().shape);
  const std::vector<onnx::Dim> dims = c.DimsOut(0);
  std::string y = c.In(0);
  for (size_t d = 0; d < shifts.size(); ++d) {
    if (shifts[d] == 0) continue;
    if (dims[d].rows != 0) return c.Fail("it moves rows of the batch");
    const auto piece = [&](int64_t begin, int64_t end) {
      return c.Op("Slice", {y, c.Ints({begin}), c.Ints({end}), c.Ints({static_cast<int64_t>(d)})});
    };
    const int64_t n = dims[d].fixed, stay = n - shifts[d];
    y = c.Op("Concat", {piece(stay, n), piece(0, stay)}, {{"axis", static_cast<int64_t>(d)}});
  }
  c.Result(y == c.In(0) ? c.Op("Identity", {y}) : y);
}

}  // namespace mslua
