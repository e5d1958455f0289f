// What transforms do to an image's pixels, as torchvision's functions of tensors do it. `bound` is the value of white:
// 255 for images of integers, whose values are whole numbers, else 1.
#pragma once

#include <cstdint>

#include "core/data/vision.h"

namespace mslua::data {

// Each makes pixels brighter, more saturated and so on by a factor; 1 leaves the image as it is. Saturation needs 3
// channels and leaves others alone.
void AdjustBrightness(float factor, float bound, Planes* image);
void AdjustContrast(float factor, float bound, Planes* image);
void AdjustSaturation(float factor, float bound, Planes* image);
void AdjustSharpness(float factor, float bound, Planes* image);

// Keeps the `bits` highest of 8 bits of each value.
void Posterize(int bits, float bound, Planes* image);
// Inverts values from `threshold` on, of 255.
void Solarize(float threshold, float bound, Planes* image);
// Stretches each channel to [0, bound].
void AutoContrast(float bound, Planes* image);
// Gives each channel a histogram that is as even as it can be.
void Equalize(float bound, Planes* image);

// Where a pixel of the result comes from: in coordinates from the image's middle, x' = xx * x + xy * y + x0 and so on.
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;
};
Affine RotationBy(double degrees);                        // counter-clockwise
Affine ShearBy(double x, double y, const Planes& image);  // tangents, around the top left corner
Affine ShiftBy(double x, double y);                       // by pixels

// Moves pixels; those from outside the image are `fill`.
void MovePixels(const Affine& from, bool bilinear, float fill, const Planes& in, Planes* out);

}  // namespace mslua::data
