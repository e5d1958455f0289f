// TrivialAugment of Müller and Hutter, "TrivialAugment: tuning-free yet state-of-the-art data augmentation", 2021.
// Follows torchvision.transforms.TrivialAugmentWide for tensors.
#include "core/data/augment.h"
#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

void Paint(const Fields& fields, float bound, SampleDraws* draws, const Planes& in, Planes* out) {
  *out = in;
  AugmentLimits limits;
  limits.shear = 0.99, limits.rotate = 135, limits.colour = 0.99, limits.least_bits = 2;
  limits.shift_x = limits.shift_y = 32;
  const int bins = static_cast<int>(fields.Int("num_magnitude_bins"));
  const int op = static_cast<int>(draws->Below(kAugmentations)), bin = static_cast<int>(draws->Below(bins));
  const bool negative = draws->Below(2) == 1;
  Planes spare;
  Augment(op, bin, bins, negative, limits, fields.String("resample") == "bilinear",
          static_cast<float>(fields.Number("fill_value")), bound, out, &spare);
}

}  // namespace

MSLUA_VISION(trivial_augment_wide) {
  VisionDef def("trivial_augment_wide", "TrivialAugmentWide");
  def.doc = "One random operation of RandAugment's, of random strength in a wider range. For images of uint8.";
  FieldDef bins{"num_magnitude_bins", FieldType::kInt, "how many strengths there are", int64_t{31}};
  bins.limits = AtLeast(2);
  FieldDef resample{"resample", FieldType::kString, "how pixels between pixels are computed", "nearest"};
  resample.choices = {"nearest", "bilinear"};
  def.fields = {bins, resample, {"fill_value", FieldType::kNumber, "value outside the image", 0.0}};
  def.draws = 3;
  def.integers = true;
  def.places = true;
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
