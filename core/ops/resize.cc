#include "core/onnx/lowering.h"
#include "core/ops/declare/averages.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

using Ints = std::vector<int64_t>;

// The map of a call. `size`: the attribute that says the other side's height and width.
StatusOr<AveragePooling> Resolve(const Attrs& attrs, const TensorType& x, absl::string_view size, bool linear) {
  const ResizeRule rule{linear, attrs.Bool("align_corners"), attrs.Bool("half_pixel_centers")};
  if (rule.align_corners && rule.half_pixel_centers)
    return absl::InvalidArgumentError("align_corners and half_pixel_centers exclude each other");
  return AveragesBySize(attrs, x, size, [&rule](int64_t from, int64_t to) { return ResizeAxis(from, to, rule); });
}

OpDef Define(std::string name, std::string input, std::string size, bool linear) {
  OpDef op(std::move(name));
  op.Input(input);
  if (!linear && input == "x") op.AllTypes();
  op.Required(size, AttrKind::kInts, "one number or (height, width)");
  op.Attr("align_corners", AttrKind::kBool, false,
          "true: the first and the last pixels of both images lie on each other; PyTorch's align_corners")
      .Attr("half_pixel_centers", AttrKind::kBool, false,
            "true: positions are those of the pixels' centres; PyTorch's with align_corners false");
  op.Choice("data_format", {"NCHW", "NHWC"}, "the order of the dimensions");
  DeclareAverages(op, [=](const Attrs& a, const TensorType& x) { return Resolve(a, x, size, linear); });
  return op;
}

// The gradient of either operator is the other one's kind, with x's sizes.
GradFn GradThrough(std::string op, std::string size) {
  return GradBySize(std::move(op), std::move(size), {"align_corners", "half_pixel_centers", "data_format"});
}

// An operator and its gradient.
std::vector<OpDef> Resize(const std::string& name, bool linear, const char* class_name, const char* doc) {
  const std::string back = name + "_grad";
  OpDef op = Define(name, "x", "size", linear);
  op.Class(class_name).Doc(doc).Grad(GradThrough(back, "input_size"));
  op.AddSample({{{DType::kF32, {2, 3, 3, 4}}}, {{"size", Ints{6, 9}}, {"half_pixel_centers", true}}});
  op.AddSample({{{DType::kF32, {2, 3, 5, 4}}}, {{"size", Ints{7, 3}}}});
  op.AddSample(
      {{{DType::kF32, {2, 5, 7, 19}}}, {{"size", Ints{8, 4}}, {"align_corners", true}, {"data_format", "NHWC"}}});

  OpDef grad = Define(back, "dy", "input_size", linear);
  grad.Doc("The gradient of " + name + ": dy [n, c, p, q] gives [n, c, h, w].").Outputs({"dx"});
  grad.Grad(GradThrough(name, "size"));
  grad.AddSample({{{DType::kF32, {2, 3, 6, 9}}}, {{"input_size", Ints{3, 4}}, {"half_pixel_centers", true}}});
  grad.AddSample({{{DType::kF32, {2, 3, 2, 19}}}, {{"input_size", Ints{5, 7}}, {"data_format", "NHWC"}}});
  return {op, grad};
}

void Lower(onnx::Lowering& c, bool linear) {
  if (!IsFloat(c.TypeIn().dtype)) return c.Fail("images of " + std::string(Name(c.TypeIn().dtype)));
  const auto p = Resolve(c.attrs(), c.TypeIn(), "size", linear);
  if (!p.ok()) return c.Fail(std::string(p.status().message()));
  onnx::LowerImageProducts(c, p->rows.Matrix(false), p->columns.Matrix(true));
}

}  // namespace

MSLUA_OPERATOR(resize) {
  std::vector<OpDef> all =
      Resize("resize_bilinear", true, "ResizeBilinearV2",
             "Images x [n, c, h, w] in another size, [n, c, p, q]: each pixel lies between two rows "
             "and two columns of x and is interpolated linearly. Smaller images are not smoothed.");
  for (OpDef& op :
       Resize("resize_nearest", false, "ResizeNearestNeighborV2",
              "Images x [n, c, h, w] in another size, [n, c, p, q]: each pixel is a copy of one of x, whose "
              "position is rounded down, with align_corners to the nearest."))
    all.push_back(std::move(op));
  return all;
}

MSLUA_ONNX(resize_bilinear) { Lower(c, true); }
MSLUA_ONNX(resize_nearest) { Lower(c, false); }

}  // namespace mslua
