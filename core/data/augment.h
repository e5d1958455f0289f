// The operations that RandAugment and TrivialAugmentWide draw from, in torchvision's order.
#pragma once

#include "core/data/image_ops.h"

namespace mslua::data {

inline constexpr int kAugmentations = 14;

// How strong the strongest ones are.
struct AugmentLimits {
  double shear = 0, rotate = 0, colour = 0;
  double shift_x = 0, shift_y = 0;  // pixels
  int least_bits = 0;               // of Posterize
};

// Applies operation `op` to the image with magnitude `bin` of 0 to bins - 1; `negative`: in the other direction, for
// those that have two. `spare` is working memory.
void Augment(int op, int bin, int bins, bool negative, const AugmentLimits& limits, bool bilinear, float fill,
             float bound, Planes* image, Planes* spare);

// Values of images of integers as whole numbers, as torchvision's transforms see them.
void RoundPixels(float bound, Planes* image);

}  // namespace mslua::data
