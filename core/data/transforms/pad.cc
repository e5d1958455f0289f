// Pad: borders around the image. Follows torchvision.transforms.functional.pad.
#include <algorithm>

#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

struct Border {
  int64_t left, top, right, bottom;
};

Border BorderOf(const Fields& fields) {
  std::vector<double> p = fields.Numbers("padding");
  if (p.size() == 1) p = {p[0], p[0], p[0], p[0]};
  if (p.size() == 2) p = {p[0], p[1], p[0], p[1]};
  const auto at = [&](size_t k) { return static_cast<int64_t>(p[k]); };
  return {at(0), at(1), at(2), at(3)};
}

// The source of element i of a line of n that is padded; -1: the fill value.
int64_t SourceOf(const std::string& mode, int64_t i, int64_t n) {
  if (i >= 0 && i < n) return i;
  if (mode == "constant") return -1;
  if (mode == "edge") return std::min(std::max<int64_t>(i, 0), n - 1);
  const int64_t edge = mode == "symmetric" ? 1 : 0;  // whether the outermost pixel is repeated
  return i < 0 ? -i - edge : 2 * n - 2 - i + edge;
}

void Paint(const Fields& fields, float, SampleDraws*, const Planes& in, Planes* out) {
  const Border b = BorderOf(fields);
  const std::string mode = fields.String("padding_mode");
  const float fill = static_cast<float>(fields.Number("fill_value"));
  out->Resize(in.channels, in.height + b.top + b.bottom, in.width + b.left + b.right);
  for (int64_t c = 0; c < in.channels; ++c) {
    for (int64_t y = 0; y < out->height; ++y) {
      const int64_t from = SourceOf(mode, y - b.top, in.height);
      for (int64_t x = 0; x < out->width; ++x) {
        const int64_t column = SourceOf(mode, x - b.left, in.width);
        out->plane(c)[y * out->width + x] = from < 0 || column < 0 ? fill : in.plane(c)[from * in.width + column];
      }
    }
  }
}

StatusOr<ImageSize> SizeAfter(const Fields& fields, ImageSize size) {
  const Border b = BorderOf(fields);
  const std::string mode = fields.String("padding_mode");
  if (mode == "reflect" || mode == "symmetric") {
    const int64_t more = mode == "reflect" ? 1 : 0;
    const bool high = size.height >= 0 && std::max(b.top, b.bottom) + more > size.height;
    const bool wide = size.width >= 0 && std::max(b.left, b.right) + more > size.width;
    if (high || wide) {
      return BadField("Pad", absl::StrCat("padding: ", mode, " needs an image that is larger than its border, got ",
                                          size.height, "x", size.width));
    }
  }
  return ImageSize{size.height < 0 ? -1 : size.height + b.top + b.bottom,
                   size.width < 0 ? -1 : size.width + b.left + b.right};
}

}  // namespace

MSLUA_VISION(pad) {
  VisionDef def("pad", "Pad");
  def.doc = "Adds borders. padding: one number, {left and right, top and bottom} or {left, top, right, bottom}.";
  FieldDef padding = NumbersField("padding", "pixels that are added", {}, FieldType::kInts);
  padding.limits = Between(0, 65536);
  FieldDef mode{"padding_mode", FieldType::kString, "what the border holds", "constant"};
  mode.choices = {"constant", "edge", "reflect", "symmetric"};
  def.fields = {padding, {"fill_value", FieldType::kNumber, "value of a constant border", 0.0}, mode};
  def.check = [](const Fields& fields, int64_t) {
    const size_t n = fields.Numbers("padding").size();
    return n == 1 || n == 2 || n == 4 ? absl::OkStatus()
                                      : BadField("Pad", absl::StrCat("padding: expected 1, 2 or 4 numbers, got ", n));
  };
  def.size = SizeAfter;
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
