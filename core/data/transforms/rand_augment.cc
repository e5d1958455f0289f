// RandAugment of Cubuk, Zoph, Shlens and Le, "RandAugment: practical automated data augmentation", 2020. Follows
// torchvision.transforms.RandAugment for tensors.
#include "core/data/augment.h"
#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

constexpr int kMostOps = 16;

void Paint(const Fields& fields, float bound, SampleDraws* draws, const Planes& in, Planes* out) {
  *out = in;
  AugmentLimits limits;
  limits.shear = 0.3, limits.rotate = 30, limits.colour = 0.9, limits.least_bits = 4;
  limits.shift_x = 150.0 / 331 * static_cast<double>(in.width);
  limits.shift_y = 150.0 / 331 * static_cast<double>(in.height);
  const int bins = static_cast<int>(fields.Int("num_magnitude_bins"));
  Planes spare;
  for (int64_t k = 0; k < fields.Int("num_ops"); ++k) {
    const int op = static_cast<int>(draws->Below(kAugmentations));
    const bool negative = draws->Below(2) == 1;
    Augment(op, static_cast<int>(fields.Int("magnitude")), bins, negative, limits,
            fields.String("resample") == "bilinear", static_cast<float>(fields.Number("fill_value")), bound, out,
            &spare);
  }
}

Status Check(const Fields& fields, int64_t) {
  const int64_t magnitude = fields.Int("magnitude"), bins = fields.Int("num_magnitude_bins");
  if (magnitude < bins) return absl::OkStatus();
  return BadField("RandAugment",
                  absl::StrCat("magnitude: expected a number below num_magnitude_bins = ", bins, ", got ", magnitude));
}

}  // namespace

MSLUA_VISION(rand_augment) {
  VisionDef def("rand_augment", "RandAugment");
  def.doc =
      "`num_ops` random operations of 14, one after another, each as strong as `magnitude` of num_magnitude_bins says: "
      "moves, turns, colours, sharpness, fewer bits, histograms. For images of uint8.";
  FieldDef ops{"num_ops", FieldType::kInt, "operations for an image", int64_t{2}};
  ops.limits = Between(1, kMostOps);
  FieldDef magnitude{"magnitude", FieldType::kInt, "how strong they are", int64_t{9}};
  magnitude.limits = AtLeast(0);
  FieldDef bins{"num_magnitude_bins", FieldType::kInt, "how many strengths there are", int64_t{31}};
  bins.limits = AtLeast(2);
  FieldDef resample{"resample", FieldType::kString, "how pixels between pixels are computed", "nearest"};
  resample.choices = {"nearest", "bilinear"};
  def.fields = {ops, magnitude, bins, resample, {"fill_value", FieldType::kNumber, "value outside the image", 0.0}};
  def.draws = 2 * kMostOps;
  def.integers = true;
  def.places = true;
  def.check = Check;
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
