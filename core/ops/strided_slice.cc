#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// What is taken of one dimension: `size` elements from `begin`, `stride` apart.
struct Range {
  int64_t begin = 0, size = 0, stride = 1;

  // One past the last element that is taken; `begin` where there is none.
  int64_t end() const { return size > 0 ? begin + (size - 1) * stride + 1 : begin; }
};

// As Python's x[begin:end:stride] in each dimension; dimensions that the lists do not reach are taken whole.
StatusOr<std::vector<Range>> Ranges(const Attrs& attrs, const TensorType& x) {
  const auto &begin = attrs.Ints("begin"), &end = attrs.Ints("end"), &strides = attrs.Ints("strides");
  if (begin.size() != end.size() || (!strides.empty() && strides.size() != begin.size()) ||
      static_cast<int64_t>(begin.size()) > x.rank()) {
    return absl::InvalidArgumentError(absl::StrCat("begin, end and strides have ", begin.size(), ", ", end.size(),
                                                   " and ", strides.size(),
                                                   " numbers, expected as many each and at most ", x.rank()));
  }
  std::vector<Range> ranges;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const int64_t n = x.shape[d];
    Range r{0, n, 1};
    if (d < static_cast<int64_t>(begin.size())) {
      const auto place = [n](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n); };
      const int64_t first = place(begin[d]), last = place(end[d]);
      if (!strides.empty()) r.stride = strides[d];
      if (r.stride < 1)
        return absl::InvalidArgumentError(
            absl::StrCat("stride ", r.stride, " of dimension ", d + 1, ", expected a positive one"));
      r.begin = first;
      r.size = last > first ? (last - first - 1) / r.stride + 1 : 0;
    }
    ranges.push_back(r);
  }
  return ranges;
}

std::string SliceRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  const auto ranges = Ranges(attrs, in[0]);
  if (!ranges.ok()) return "";
  std::string left, right;
  for (int64_t d = 0; d < in[0].rank(); ++d) {
    const bool all = (*ranges)[d].size == in[0].shape[d];
    absl::StrAppend(&left, all ? "d" : "!x", d, " ");
    absl::StrAppend(&right, all ? "d" : "!y", d, " ");
  }
  return absl::StrCat(left, "-> ", right);
}

}  // namespace

MSLUA_OPERATOR(strided_slice) {
  OpDef op("strided_slice");
  op.Class("StridedSlice")
      .Doc(
          "The elements begin, begin + stride, ... before end of each dimension; negative ones count from the end. "
          "Where there are none, as in Python, the result has no elements.");
  op.Input("x").AllTypes();
  op.Required("begin", AttrKind::kInts, "the first subscript of each dimension")
      .Required("end", AttrKind::kInts, "one past the last subscript; by name in Lua: end_");
  op.Attr("strides", AttrKind::kInts, std::vector<int64_t>{}, "steps, positive; none: 1 each");
  op.Rule(SliceRule);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const std::vector<Range> ranges, Ranges(a, in[0]));
    TensorType y = in[0];
    for (size_t d = 0; d < ranges.size(); ++d) y.shape[d] = ranges[d].size;
    return std::vector<TensorType>{y};
  });
  // A dimension that is split over devices is taken whole: by each part too.
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    ASSIGN_OR_RETURN(const std::vector<Range> ranges, Ranges(c.attrs, c.global_inputs[0]));
    std::vector<int64_t> begin, end, strides;
    for (size_t d = 0; d < ranges.size(); ++d) {
      const bool all = ranges[d].size == c.global_inputs[0].shape[d];
      begin.push_back(ranges[d].begin);
      end.push_back(all ? c.local_inputs[0].shape[d] : ranges[d].end());
      strides.push_back(ranges[d].stride);
    }
    Attrs attrs = c.attrs;
    return attrs.Set("begin", begin).Set("end", end).Set("strides", strides);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    const TensorType x = c.g.TypeOf(c.x(0));
    const auto ranges = Ranges(c.attrs, x);  // has succeeded when the node was made
    std::vector<int64_t> low, high, interior;
    for (size_t d = 0; d < ranges->size(); ++d) {
      const Range& r = (*ranges)[d];
      low.push_back(r.begin);
      high.push_back(x.shape[d] - r.end());
      interior.push_back(r.stride - 1);
    }
    return {c.g.Op("pad", {c.dy[0]}, {{"low", low}, {"high", high}, {"interior", interior}})};
  });
  op.Reference([](const OpCall& c) -> Status {
    const TensorType &x = c.inputs[0].type, &y = c.outputs[0].type;
    ASSIGN_OR_RETURN(const std::vector<Range> ranges, Ranges(c.attrs, x));
    Shape from = RowMajorStrides(x.shape);
    int64_t at = 0;
    for (size_t d = 0; d < ranges.size(); ++d) {
      at += ranges[d].begin * from[d];
      from[d] *= ranges[d].stride;
    }
    const int64_t size = SizeOf(x.dtype);
    StridedCopy(size, y.shape, c.inputs[0].as<char>() + at * size, from, c.outputs[0].data, RowMajorStrides(y.shape));
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& spec) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const std::vector<Range> ranges, Ranges(spec.attrs, spec.inputs[0]));
    Shape strides = RowMajorStrides(spec.inputs[0].shape);
    int64_t first = 0;
    for (size_t d = 0; d < ranges.size(); ++d) {
      first += ranges[d].begin * strides[d];
      strides[d] *= ranges[d].stride;
    }
    const std::string from = StridedIndex("i", spec.outputs[0].shape, strides, first);
    return OneStep(EachElement(spec.outputs[0].elements(), absl::StrCat("  y0[i] = x0[", from, "];")));
  });
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {5, 6}}}, {{"begin", Ints{1, 0}}, {"end", Ints{4, 6}}}});
  op.AddSample({{{DType::kF32, {4, 7, 3}}}, {{"begin", Ints{0, 1}}, {"end", Ints{4, -1}}, {"strides", Ints{1, 2}}}});
  return {op};
}

MSLUA_ONNX(strided_slice) {
  const std::vector<onnx::Dim> begin = c.DimsOf("begin"), end = c.DimsOf("end");
  std::vector<int64_t> axes(begin.size()), steps = c.attrs().Ints("strides");
  std::iota(axes.begin(), axes.end(), int64_t{0});
  if (steps.empty()) steps.assign(begin.size(), 1);
  c.Result(c.Op("Slice", {c.In(0), c.Shape(begin), c.Shape(end), c.Ints(axes), c.Ints(steps)}));
}

}  // namespace mslua
