// ColorJitter: brightness, contrast, saturation and hue by random factors in a random order. Follows
// torchvision.transforms.ColorJitter for tensors: images of integers are truncated after each step.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/data/image_ops.h"
#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

constexpr const char* kNames[] = {"brightness", "contrast", "saturation", "hue"};

// {least, greatest} factor; a number x stands for {max(0, 1 - x), 1 + x}, of hue for {-x, x}.
std::array<double, 2> RangeOf(const Fields& fields, int k) {
  const std::vector<double> v = fields.Numbers(kNames[k]);
  if (v.size() == 2) return {v[0], v[1]};
  if (k == 3) return {-v[0], v[0]};
  return {std::max(0.0, 1 - v[0]), 1 + v[0]};
}

// The pixel's hue moved by `shift` turns; r, g, b in [0, 1].
void ShiftHue(double shift, float* r, float* g, float* b) {
  const float most = std::max({*r, *g, *b}), least = std::min({*r, *g, *b}), range = most - least;
  const float saturation = most == least ? 0 : range / most, divisor = most == least ? 1 : range;
  const float rc = (most - *r) / divisor, gc = (most - *g) / divisor, bc = (most - *b) / divisor;
  float hue = *r == most ? bc - gc : *g == most ? 2 + rc - bc : 4 + gc - rc;
  hue = std::fmod(hue / 6 + 1, 1.0f);
  hue = hue + static_cast<float>(shift);
  hue -= std::floor(hue);
  const float sixth = std::floor(hue * 6), f = hue * 6 - sixth;
  const auto unit = [](float x) { return std::min(std::max(x, 0.0f), 1.0f); };
  const float p = unit(most * (1 - saturation)), q = unit(most * (1 - saturation * f));
  const float t = unit(most * (1 - saturation * (1 - f))), v = most;
  const float table[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  const float* rgb = table[static_cast<int>(sixth) % 6];
  *r = rgb[0], *g = rgb[1], *b = rgb[2];
}

void AdjustHue(double shift, float bound, Planes* image) {
  float *r = image->plane(0), *g = image->plane(1), *b = image->plane(2);
  for (int64_t i = 0; i < image->height * image->width; ++i) {
    float rgb[3] = {r[i] / bound, g[i] / bound, b[i] / bound};
    ShiftHue(shift, &rgb[0], &rgb[1], &rgb[2]);
    // As torchvision converts floats to bytes: 0..1 in 256 equal parts.
    const auto scaled = [&](float v) { return bound == 255 ? std::floor(v * 255.999f) : v; };
    r[i] = scaled(rgb[0]), g[i] = scaled(rgb[1]), b[i] = scaled(rgb[2]);
  }
}

void Adjust(int step, double factor, float bound, Planes* image) {
  const auto f = static_cast<float>(factor);
  if (step == 0) AdjustBrightness(f, bound, image);
  if (step == 1) AdjustContrast(f, bound, image);
  if (step == 2) AdjustSaturation(f, bound, image);
  if (step == 3) AdjustHue(factor, bound, image);
}

void Paint(const Fields& fields, float bound, SampleDraws* draws, const Planes& in, Planes* out) {
  *out = in;
  int order[4] = {0, 1, 2, 3};
  for (int k = 3; k > 0; --k) std::swap(order[k], order[draws->Below(k + 1)]);
  double factors[4];
  for (int k = 0; k < 4; ++k) {
    const auto range = RangeOf(fields, k);
    factors[k] = draws->Uniform(range[0], range[1]);
  }
  for (int step : order) {
    const auto range = RangeOf(fields, step);
    const double nothing = step == 3 ? 0 : 1;
    if (range[0] != nothing || range[1] != nothing) Adjust(step, factors[step], bound, out);
  }
}

Status Check(const Fields& fields, int64_t channels) {
  if (channels != 3) return BadField("ColorJitter", absl::StrCat("expected an image of 3 channels, got ", channels));
  for (int k = 0; k < 4; ++k) {
    const std::vector<double> v = fields.Numbers(kNames[k]);
    const double least = k == 3 && v.size() == 2 ? -0.5 : 0;
    bool good = (v.size() == 1 || v.size() == 2) && v[0] >= least && v[0] <= v.back();
    if (k == 3) good &= v.back() <= 0.5;
    if (!good) {
      return BadField(
          "ColorJitter",
          absl::StrCat(kNames[k], k == 3 ? ": expected a number from 0 to 0.5, or {least, greatest} from -0.5 to 0.5"
                                         : ": expected a number of at least 0, or {least, greatest}"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

MSLUA_VISION(color_jitter) {
  VisionDef def("color_jitter", "ColorJitter");
  def.doc =
      "Changes brightness, contrast, saturation and hue of an RGB image by random amounts, in a random order. A number "
      "x stands for factors of {max(0, 1 - x), 1 + x}, of hue for turns of {-x, x}.";
  for (const char* name : kNames)
    def.fields.push_back(NumbersField(name, "a number, or {least, greatest}", std::vector<double>{0}));
  // {1, 1} leaves an image as it is; so does 0.
  def.draws = 3 + 4;
  def.check = Check;
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
