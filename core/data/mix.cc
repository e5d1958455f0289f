#include "core/data/mix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/rng.h"

namespace mslua::data {
namespace {

// Numbers of a stream, one after another.
class Numbers {
 public:
  Numbers(uint64_t seed, uint64_t stream, uint64_t first) : seed_(seed), stream_(stream), next_(first) {}
  double Uniform() { return UniformAt(seed_, stream_, next_++); }
  double Normal() { return NormalAt(seed_, stream_, next_++); }
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(UniformIntAt(seed_, stream_, next_++, static_cast<uint64_t>(n)));
  }

 private:
  uint64_t seed_, stream_, next_;
};

// The logarithm of a number from the gamma distribution of shape `alpha`, which itself may be too small for a double:
// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double LogOfGamma(double alpha, Numbers* numbers) {
  if (alpha < 1) {
    const double u = 1 - numbers->Uniform();  // (0, 1]
    return LogOfGamma(alpha + 1, numbers) + std::log(u) / alpha;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = numbers->Normal(), root = 1 + c * x, u = 1 - numbers->Uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

}  // namespace

MixedPart DrawMix(const MixOp& op, const TensorType& image, bool planar, uint64_t seed, uint64_t stream,
                  uint64_t batch) {
  constexpr uint64_t kNumbers = 1 << 16;  // that a batch may take
  Numbers numbers(seed, stream, batch * kNumbers);
  MixedPart part;
  part.mixes = numbers.Uniform() < op.prob;
  const double a = LogOfGamma(op.alpha, &numbers), b = LogOfGamma(op.alpha, &numbers);
  const double kept = 1 / (1 + std::exp(b - a));
  part.kept = static_cast<float>(kept);
  part.box = op.cut;
  if (!op.cut) return part;
  part.planar = planar;
  const int64_t height = image.shape[planar ? 1 : 0], width = image.shape[planar ? 2 : 1];
  const int64_t x = numbers.Below(width), y = numbers.Below(height);
  const double half = 0.5 * std::sqrt(1 - kept);
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  part.left = std::max<int64_t>(x - half_width, 0), part.right = std::min(x + half_width, width);
  part.top = std::max<int64_t>(y - half_height, 0), part.bottom = std::min(y + half_height, height);
  const int64_t area = (part.right - part.left) * (part.bottom - part.top);
  part.kept = static_cast<float>(1 - static_cast<double>(area) / static_cast<double>(width * height));
  return part;
}

void BlendRows(float kept, int64_t size, int64_t rows, const float* before, float* x) {
  for (int64_t r = rows - 1; r >= 0; --r) {
    const float* other = r > 0 ? x + (r - 1) * size : before;
    float* row = x + r * size;
    for (int64_t i = 0; i < size; ++i) row[i] = kept * row[i] + (1 - kept) * other[i];
  }
}

void MixRowsOf(const MixedPart& part, const TensorType& image, int64_t rows, const float* before, float* x) {
  const int64_t size = image.elements();
  if (!part.box) return BlendRows(part.kept, size, rows, before, x);
  const int64_t planes = part.planar ? image.shape[0] : 1, pixel = part.planar ? 1 : image.shape[2];
  const int64_t height = image.shape[part.planar ? 1 : 0], width = image.shape[part.planar ? 2 : 1];
  for (int64_t r = rows - 1; r >= 0; --r) {
    const float* other = r > 0 ? x + (r - 1) * size : before;
    float* row = x + r * size;
    for (int64_t p = 0; p < planes; ++p) {
      for (int64_t y = part.top; y < part.bottom; ++y) {
        const int64_t at = ((p * height + y) * width + part.left) * pixel;
        std::memcpy(row + at, other + at, static_cast<size_t>((part.right - part.left) * pixel) * sizeof(float));
      }
    }
  }
}

}  // namespace mslua::data
