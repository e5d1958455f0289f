#include "core/data/image_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

float Kept(float value, float bound) {
  value = std::min(std::max(value, 0.0f), bound);
  return bound == 255 ? std::floor(value) : value;
}

// value * factor + other * (1 - factor)
float Blend(float value, float other, float factor, float bound) {
  return Kept(factor * value + (1 - factor) * other, bound);
}

float Grey(const Planes& image, int64_t i, float bound) {
  if (image.channels != 3) return image.plane(0)[i];
  const float grey = Luma(image.plane(0)[i], image.plane(1)[i], image.plane(2)[i]);
  return bound == 255 ? std::floor(grey) : grey;
}

// A value as a byte.
int Byte(float value, float bound) {
  return static_cast<int>(std::min(std::max(bound == 255 ? value : std::floor(value * 255.999f), 0.0f), 255.0f));
}
float FromByte(int byte, float bound) {
  return bound == 255 ? static_cast<float>(byte) : static_cast<float>(byte) / 255;
}

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

}  // namespace

void AdjustBrightness(float factor, float bound, Planes* image) {
  for (float& v : image->values) v = Blend(v, 0, factor, bound);
}

void AdjustContrast(float factor, float bound, Planes* image) {
  const int64_t n = image->height * image->width;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += Grey(*image, i, bound);
  const float mean = static_cast<float>(sum / static_cast<double>(n));
  for (float& v : image->values) v = Blend(v, mean, factor, bound);
}

void AdjustSaturation(float factor, float bound, Planes* image) {
  if (image->channels != 3) return;
  for (int64_t i = 0; i < image->height * image->width; ++i) {
    const float grey = Grey(*image, i, bound);
    for (int64_t c = 0; c < 3; ++c) image->plane(c)[i] = Blend(image->plane(c)[i], grey, factor, bound);
  }
}

void AdjustSharpness(float factor, float bound, Planes* image) {
  const int64_t h = image->height, w = image->width;
  if (h <= 2 || w <= 2) return;
  std::vector<float> smooth(static_cast<size_t>(h * w));
  for (int64_t c = 0; c < image->channels; ++c) {
    float* plane = image->plane(c);
    std::copy(plane, plane + h * w, smooth.begin());
    for (int64_t y = 1; y + 1 < h; ++y) {
      for (int64_t x = 1; x + 1 < w; ++x) {
        float sum = 4 * plane[y * w + x];
        for (int64_t k = 0; k < 9; ++k) sum += plane[(y + k / 3 - 1) * w + x + k % 3 - 1];
        smooth[static_cast<size_t>(y * w + x)] = bound == 255 ? std::nearbyint(sum / 13) : sum / 13;
      }
    }
    for (int64_t i = 0; i < h * w; ++i) plane[i] = Blend(plane[i], smooth[static_cast<size_t>(i)], factor, bound);
  }
}

void Posterize(int bits, float bound, Planes* image) {
  const int mask = bits <= 0 ? 0 : 255 & ~((1 << (8 - std::min(bits, 8))) - 1);
  for (float& v : image->values) v = FromByte(Byte(v, bound) & mask, bound);
}

void Solarize(float threshold, float bound, Planes* image) {
  const float limit = threshold / 255 * bound;
  for (float& v : image->values) v = v >= limit ? bound - v : v;
}

void AutoContrast(float bound, Planes* image) {
  const int64_t n = image->height * image->width;
  for (int64_t c = 0; c < image->channels; ++c) {
    float* plane = image->plane(c);
    const auto [low, high] = std::minmax_element(plane, plane + n);
    const float least = *low, scale = bound / (*high - least);
    if (!std::isfinite(scale)) continue;
    for (int64_t i = 0; i < n; ++i) plane[i] = Kept((plane[i] - least) * scale, bound);
  }
}

void Equalize(float bound, Planes* image) {
  const int64_t n = image->height * image->width;
  for (int64_t c = 0; c < image->channels; ++c) {
    float* plane = image->plane(c);
    std::array<int64_t, 256> counts{};
    for (int64_t i = 0; i < n; ++i) ++counts[static_cast<size_t>(Byte(plane[i], bound))];
    const auto last = std::find_if(counts.rbegin(), counts.rend(), [](int64_t k) { return k > 0; });
    const int64_t step = (n - *last) / 255;
    if (step == 0) continue;
    std::array<int, 256> table{};
    int64_t sum = 0;
    for (size_t v = 0; v < 256; ++v) {
      table[v] = static_cast<int>(std::min<int64_t>((sum + step / 2) / step, 255));
      sum += counts[v];
    }
    table[0] = 0;
    for (int64_t i = 0; i < n; ++i) plane[i] = FromByte(table[static_cast<size_t>(Byte(plane[i], bound))], bound);
  }
}

Affine RotationBy(double degrees) {
  const double angle = degrees * 3.14159265358979323846 / 180, c = std::cos(angle), s = std::sin(angle);
  return {c, -s, 0, s, c, 0};
}

Affine ShearBy(double x, double y, const Planes& image) {
  // The inverse of (1 + x y, x; y, 1) up to torchvision's order of the two: one of them is 0.
  const double cx = -static_cast<double>(image.width) / 2, cy = -static_cast<double>(image.height) / 2;
  return {1, x, -x * cy, y, 1, -y * cx};
}

Affine ShiftBy(double x, double y) { return {1, 0, -x, 0, 1, -y}; }

void MovePixels(const Affine& from, bool bilinear, float fill, const Planes& in, Planes* out) {
  out->Resize(in.channels, in.height, in.width);
  const auto sample = bilinear ? Bilinear : Nearest;
  const double half_width = static_cast<double>(in.width) / 2, half_height = static_cast<double>(in.height) / 2;
  for (int64_t row = 0; row < in.height; ++row) {
    for (int64_t column = 0; column < in.width; ++column) {
      const double x = static_cast<double>(column) + 0.5 - half_width, y = static_cast<double>(row) + 0.5 - half_height;
      const double from_x = from.xx * x + from.xy * y + from.x0 + half_width - 0.5;
      const double from_y = from.yx * x + from.yy * y + from.y0 + half_height - 0.5;
      for (int64_t c = 0; c < in.channels; ++c)
        out->plane(c)[row * in.width + column] = sample(in.plane(c), in, from_x, from_y, fill);
    }
  }
}

}  // namespace mslua::data
