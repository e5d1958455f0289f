// RandomRotation around the middle. Follows torchvision.transforms.functional.rotate without `expand`.
#include "core/data/image_ops.h"
#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

void Paint(const Fields& fields, float, SampleDraws* draws, const Planes& in, Planes* out) {
  const std::vector<double> degrees = fields.Numbers("degrees");
  const double low = degrees.size() == 1 ? -degrees[0] : degrees[0];
  MovePixels(RotationBy(draws->Uniform(low, degrees.back())), fields.String("resample") == "bilinear",
             static_cast<float>(fields.Number("fill_value")), in, out);
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
  def.places = true;
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
