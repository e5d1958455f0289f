#include "core/data/augment.h"

#include <cmath>
#include <utility>

namespace mslua::data {

void Augment(int op, int bin, int bins, bool negative, const AugmentLimits& limits, bool bilinear, float fill,
             float bound, Planes* image, Planes* spare) {
  const double share = bins > 1 ? static_cast<double>(bin) / (bins - 1) : 0, sign = negative ? -1 : 1;
  const auto move = [&](const Affine& from) {
    MovePixels(from, bilinear, fill, *image, spare);
    std::swap(*image, *spare);
    if (bilinear) RoundPixels(bound, image);
  };
  const auto factor = static_cast<float>(1 + sign * share * limits.colour);
  switch (op) {
    case 0:  // as it is
      return;
    case 1:
      return move(ShearBy(sign * share * limits.shear, 0, *image));
    case 2:
      return move(ShearBy(0, sign * share * limits.shear, *image));
    case 3:
      return move(ShiftBy(std::trunc(sign * share * limits.shift_x), 0));
    case 4:
      return move(ShiftBy(0, std::trunc(sign * share * limits.shift_y)));
    case 5:
      return move(RotationBy(sign * share * limits.rotate));
    case 6:
      return AdjustBrightness(factor, bound, image);
    case 7:
      return AdjustSaturation(factor, bound, image);
    case 8:
      return AdjustContrast(factor, bound, image);
    case 9:
      return AdjustSharpness(factor, bound, image);
    case 10:
      return Posterize(8 - static_cast<int>(std::nearbyint(share * (8 - limits.least_bits))), bound, image);
    case 11:
      return Solarize(static_cast<float>(255 * (1 - share)), bound, image);
    case 12:
      return AutoContrast(bound, image);
    default:
      return Equalize(bound, image);
  }
}

void RoundPixels(float bound, Planes* image) {
  if (bound != 255) return;
  for (float& v : image->values) v = std::nearbyint(v);
}

}  // namespace mslua::data
