// RandomRotation around the middle. Follows torchvision.transforms.functional.rotate without `expand`.
#include <cmath>

#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

// The pixel nearest to a place, or `fill` outside.
float Nearest(const float* plane, const Planes& image, double x, double y, float fill) {
  const int64_t column = std::llrint(x), row = std::llrint(y);
  const bool inside = column >= 0 && column < image.width && row >= 0 && row < image.height;
  return inside ? plane[row * image.width + column] : fill;
}

// Between four pixels. Those outside weigh nothing; torchvision mixes what is left with `fill` by the weight inside.
float Bilinear(const float* plane, const Planes& image, double x, double y, float fill) {
  const double left = std::floor(x), top = std::floor(y);
  const float wx = static_cast<float>(x - left), wy = static_cast<float>(y - top);
  float sum = 0, inside = 0;
  for (int k = 0; k < 4; ++k) {
    const int64_t column = static_cast<int64_t>(left) + k % 2, row = static_cast<int64_t>(top) + k / 2;
    if (column < 0 || column >= image.width || row < 0 || row >= image.height) continue;
    const float weight = (k % 2 == 1 ? wx : 1 - wx) * (k / 2 == 1 ? wy : 1 - wy);
    sum += weight * plane[row * image.width + column];
    inside += weight;
  }
  return sum * inside + (1 - inside) * fill;
}

void Paint(const Fields& fields, float, SampleDraws* draws, const Planes& in, Planes* out) {
  const std::vector<double> degrees = fields.Numbers("degrees");
  const double low = degrees.size() == 1 ? -degrees[0] : degrees[0];
  const double angle = draws->Uniform(low, degrees.back()) * 3.14159265358979323846 / 180;
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const float fill = static_cast<float>(fields.Number("fill_value"));
  const auto sample = fields.String("resample") == "bilinear" ? Bilinear : Nearest;
  out->Resize(in.channels, in.height, in.width);
  const double half_width = static_cast<double>(in.width) / 2, half_height = static_cast<double>(in.height) / 2;
  for (int64_t y = 0; y < in.height; ++y) {
    for (int64_t x = 0; x < in.width; ++x) {
      const double dx = static_cast<double>(x) + 0.5 - half_width, dy = static_cast<double>(y) + 0.5 - half_height;
      const double from_x = cosine * dx - sine * dy + half_width - 0.5;
      const double from_y = sine * dx + cosine * dy + half_height - 0.5;
      for (int64_t c = 0; c < in.channels; ++c)
        out->plane(c)[y * in.width + x] = sample(in.plane(c), in, from_x, from_y, fill);
    }
  }
}

}  // namespace

MSLUA_VISION(random_rotation) {
  VisionDef def("random_rotation", "RandomRotation");
  def.doc = "Turns the image by a random angle, counter-clockwise; its size stays.";
  FieldDef resample{"resample", FieldType::kString, "how pixels between pixels are computed", "nearest"};
  resample.choices = {"nearest", "bilinear"};
  def.fields = {NumbersField("degrees", "{least, greatest} angle, or one number for both sides"),
                resample,
                {"fill_value", FieldType::kNumber, "value outside the image", 0.0}};
  def.draws = 1;
  def.check = [](const Fields& fields, int64_t) {
    const std::vector<double> degrees = fields.Numbers("degrees");
    const bool one = degrees.size() == 1 && degrees[0] >= 0;
    return one || (degrees.size() == 2 && degrees[0] <= degrees[1])
               ? absl::OkStatus()
               : BadField("RandomRotation", "degrees: expected a number of at least 0, or {least, greatest}");
  };
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
