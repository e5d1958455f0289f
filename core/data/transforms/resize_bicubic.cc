// Resize with bicubic interpolation: torchvision.transforms.functional.resize of tensors without smoothing, whose
// kernel has a = -0.75. In Lua it is Resize with interpolation = "bicubic".
#include <algorithm>
#include <array>
#include <cmath>

#include "core/data/transforms/define.h"

namespace mslua::data {
namespace {

// The four source elements of an element of the result, and their weights.
struct Cubic {
  std::array<int64_t, 4> at;
  std::array<float, 4> weight;
};

std::vector<Cubic> CubicTaps(int64_t from, int64_t to) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };         // |x| <= 1
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };  // 1 < |x| < 2
  std::vector<Cubic> taps(static_cast<size_t>(to));
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t i = 0; i < to; ++i) {
    const double place = scale * (static_cast<double>(i) + 0.5) - 0.5, floor = std::floor(place), t = place - floor;
    const double weights[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    Cubic& tap = taps[static_cast<size_t>(i)];
    for (int64_t k = 0; k < 4; ++k) {
      tap.at[static_cast<size_t>(k)] = std::clamp<int64_t>(static_cast<int64_t>(floor) + k - 1, 0, from - 1);
      tap.weight[static_cast<size_t>(k)] = static_cast<float>(weights[k]);
    }
  }
  return taps;
}

void Paint(const Fields& fields, float bound, SampleDraws*, const Planes& in, Planes* out) {
  const ImageSize to = SizeOfResize(fields, {in.height, in.width});
  const auto rows = CubicTaps(in.height, to.height), columns = CubicTaps(in.width, to.width);
  out->Resize(in.channels, to.height, to.width);
  std::vector<float> line(static_cast<size_t>(in.width));
  for (int64_t c = 0; c < in.channels; ++c) {
    for (int64_t y = 0; y < to.height; ++y) {
      const Cubic& row = rows[static_cast<size_t>(y)];
      for (int64_t x = 0; x < in.width; ++x) {
        float sum = 0;
        for (size_t k = 0; k < 4; ++k) sum += row.weight[k] * in.plane(c)[row.at[k] * in.width + x];
        line[static_cast<size_t>(x)] = sum;
      }
      float* result = out->plane(c) + y * to.width;
      for (int64_t x = 0; x < to.width; ++x) {
        const Cubic& column = columns[static_cast<size_t>(x)];
        float sum = 0;
        for (size_t k = 0; k < 4; ++k) sum += column.weight[k] * line[static_cast<size_t>(column.at[k])];
        // Overshoots of bytes end at black and white.
        result[x] = bound == 255 ? std::clamp(sum, 0.0f, 255.0f) : sum;
      }
    }
  }
}

}  // namespace

MSLUA_VISION(resize_bicubic) {
  VisionDef def("resize_bicubic", "ResizeBicubic");
  def.doc = "Scales the image, bicubic.";
  def.fields = {NumbersField("size", "{height, width}, or one number for the shorter edge", {}, FieldType::kInts)};
  def.check = [](const Fields& fields, int64_t) { return CheckSizeOfResize(fields); };
  def.size = SizeOfResize;
  def.paint = Paint;
  return def;
}

}  // namespace mslua::data
