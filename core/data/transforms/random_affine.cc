// RandomAffine around the middle. Follows torchvision.transforms.functional.affine, with MindSpore's arguments.
#include <cmath>

#include "core/data/image_ops.h"
#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

using Range = std::vector<double>;

constexpr double kRadians = 3.14159265358979323846 / 180;

// A number of list[first], list[first + 1]; `otherwise` where the list is shorter.
double Draw(const std::vector<double>& list, size_t first, double otherwise, SampleDraws* draws) {
  return list.size() < first + 2 ? otherwise : draws->Uniform(list[first], list[first + 1]);
}

void Paint(const Fields& fields, float, SampleDraws* draws, const Planes& in, Planes* out) {
  std::vector<double> degrees = fields.Numbers("degrees"), shear = fields.Numbers("shear");
  if (degrees.size() == 1) degrees = {-degrees[0], degrees[0]};
  if (shear.size() == 1) shear = {-shear[0], shear[0]};
  const std::vector<double> translate = fields.Numbers("translate");
  const double angle = Draw(degrees, 0, 0, draws) * kRadians;
  const double x = std::nearbyint(Draw(translate, 0, 0, draws) * static_cast<double>(in.width));
  const double y = std::nearbyint(Draw(translate, 2, 0, draws) * static_cast<double>(in.height));
  const double scale = Draw(fields.Numbers("scale"), 0, 1, draws);
  const double shear_x = Draw(shear, 0, 0, draws) * kRadians, shear_y = Draw(shear, 2, 0, draws) * kRadians;
  // (a, b; c, d) turns after it has sheared; the pixel comes from where the inverse, whose determinant is 1, leads.
  const double a = std::cos(angle - shear_y) / std::cos(shear_y), c = std::sin(angle - shear_y) / std::cos(shear_y);
  const double b = -a * std::tan(shear_x) - std::sin(angle), d = -c * std::tan(shear_x) + std::cos(angle);
  Affine from{d / scale, -b / scale, 0, -c / scale, a / scale, 0};
  from.x0 = -from.xx * x - from.xy * y;
  from.y0 = -from.yx * x - from.yy * y;
  MovePixels(from, fields.String("resample") == "bilinear", static_cast<float>(fields.Number("fill_value")), in, out);
}

// Whether a list has one of two lengths, and each pair in it is in order and from `least` to `greatest`.
bool IsRanges(const std::vector<double>& list, size_t length, size_t other, double least, double greatest) {
  if (list.size() != length && list.size() != other) return false;
  for (size_t i = 0; i + 1 < list.size(); i += 2) {
    if (list[i] < least || list[i] > list[i + 1] || list[i + 1] > greatest) return false;
  }
  return list.size() != 1 || (list[0] >= 0 && list[0] <= greatest);
}

Status Check(const Fields& fields, int64_t) {
  const char* const name = "RandomAffine";
  if (!IsRanges(fields.Numbers("degrees"), 1, 2, -HUGE_VAL, HUGE_VAL))
    return BadField(name, "degrees: expected a number of at least 0, or {least, greatest}");
  const std::vector<double> translate = fields.Numbers("translate"), shear = fields.Numbers("shear");
  if (!IsRanges(translate, 2, 4, -1, 1))
    return BadField(name,
                    "translate: expected {least x, greatest x}, or these and {.., least y, greatest y}, from -1 "
                    "to 1");
  const std::vector<double> scale = fields.Numbers("scale");
  if (!IsRanges(scale, 2, 2, 0, HUGE_VAL) || scale[0] == 0)
    return BadField(name, "scale: expected {least, greatest}, above 0");
  if (!IsRanges(shear, 1, 2, -89, 89) && !IsRanges(shear, 4, 4, -89, 89))
    return BadField(name,
                    "shear: expected a number from 0 to 89, {least x, greatest x}, or these and {.., least y, "
                    "greatest y}, from -89 to 89");
  return absl::OkStatus();
}

}  // namespace

MSLUA_VISION(random_affine) {
  VisionDef def("random_affine", "RandomAffine");
  def.doc = "Turns, moves, scales and shears the image by random amounts; its size stays.";
  FieldDef resample{"resample", FieldType::kString, "how pixels between pixels are computed", "nearest"};
  resample.choices = {"nearest", "bilinear"};
  def.fields = {
      NumbersField("degrees", "{least, greatest} angle, clockwise, or one number for both sides"),
      NumbersField("translate", "{least x, greatest x, least y, greatest y} shift, as a part of the image",
                   Range{0, 0}),
      NumbersField("scale", "{least, greatest} factor", Range{1, 1}),
      NumbersField("shear", "{least x, greatest x, least y, greatest y} angle, or one number for both sides of x",
                   Range{0, 0}),
      resample,
      {"fill_value", FieldType::kNumber, "value outside the image", 0.0}};
  def.draws = 6;
  def.places = true;
  def.check = Check;
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
