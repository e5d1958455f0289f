// RandomResizedCrop: a random part of a random shape, resized. Follows torchvision.transforms.RandomResizedCrop.
#include <cmath>

#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

struct Box {
  int64_t top, left, height, width;
};

// The part of the image; its middle, as near to the ratio as it can be, where no attempt fits.
Box Draw(const Fields& fields, int64_t height, int64_t width, SampleDraws* draws) {
  const std::vector<double> scale = fields.Numbers("scale"), ratio = fields.Numbers("ratio");
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int64_t attempt = 0; attempt < fields.Int("max_attempts"); ++attempt) {
    const double target = area * draws->Uniform(scale[0], scale[1]);
    const double aspect = std::exp(draws->Uniform(std::log(ratio[0]), std::log(ratio[1])));
    const int64_t w = std::llrint(std::sqrt(target * aspect)), h = std::llrint(std::sqrt(target / aspect));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int64_t top = draws->Below(height - h + 1);
    return {top, draws->Below(width - w + 1), h, w};
  }
  const double in_ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t h = height, w = width;
  if (in_ratio < ratio[0])
    h = std::min<int64_t>(height, std::llrint(static_cast<double>(width) / ratio[0]));
  else if (in_ratio > ratio[1])
    w = std::min<int64_t>(width, std::llrint(static_cast<double>(height) * ratio[1]));
  return {(height - h) / 2, (width - w) / 2, std::max<int64_t>(h, 1), std::max<int64_t>(w, 1)};
}

ImageSize SizeOf(const Fields& fields) {
  const std::vector<double> size = fields.Numbers("size");
  return {static_cast<int64_t>(size[0]), static_cast<int64_t>(size.back())};
}

Status Check(const Fields& fields, int64_t) {
  const std::vector<double> size = fields.Numbers("size");
  if (size.empty() || size.size() > 2 || size[0] > 65536 || size.back() > 65536)
    return BadField("RandomResizedCrop", "size: expected a number or {height, width} of at most 65536");
  for (const char* name : {"scale", "ratio"}) {
    const std::vector<double> range = fields.Numbers(name);
    if (range.size() != 2 || !(range[0] > 0) || range[1] < range[0])
      return BadField("RandomResizedCrop", absl::StrCat(name, ": expected {least, greatest}, both above 0"));
  }
  return absl::OkStatus();
}

}  // namespace

MSLUA_VISION(random_resized_crop) {
  VisionDef def("random_resized_crop", "RandomResizedCrop");
  def.doc =
      "A random part of the image, resized to `size`: its share of the area is within `scale`, its width by its height "
      "within `ratio`.";
  FieldDef size = NumbersField("size", "{height, width}, or one number for both", {}, FieldType::kInts);
  size.limits = AtLeast(1);
  FieldDef attempts{"max_attempts", FieldType::kInt, "draws before the middle of the image is taken", 10};
  attempts.limits = Between(1, 20);
  FieldDef interpolation{"interpolation", FieldType::kString,
                         "\"nearest\": values stay as they are, as those of a mask of classes must", "bilinear"};
  interpolation.choices = {"bilinear", "nearest"};
  def.fields = {size, NumbersField("scale", "{least, greatest} share of the area", std::vector<double>{0.08, 1}),
                NumbersField("ratio", "{least, greatest} width by height", std::vector<double>{3.0 / 4, 4.0 / 3}),
                attempts, interpolation};
  def.draws = 42;  // two for each attempt, two for the place
  def.places = true;
  def.resizes = true;
  def.check = Check;
  def.size = [](const Fields& fields, ImageSize) -> StatusOr<ImageSize> { return SizeOf(fields); };
  def.move = [](const Fields& fields, SampleDraws* draws, const ImageTaps& taps) {
    const Box box =
        Draw(fields, static_cast<int64_t>(taps.rows->size()), static_cast<int64_t>(taps.columns->size()), draws);
    const ImageSize size = SizeOf(fields);
    Window(box.top, box.height, taps.rows, taps.spare);
    Window(box.left, box.width, taps.columns, taps.spare);
    const auto scale = fields.String("interpolation") == "nearest" ? TakeNearest : Interpolate;
    scale(size.height, taps.rows, taps.spare);
    scale(size.width, taps.columns, taps.spare);
  };
  return def;
}

}  // namespace mslua::data
