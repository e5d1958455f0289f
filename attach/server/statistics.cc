#include "attach/server/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/hash.h"

namespace mslua::endpoint {
namespace {

struct Sums {
  int64_t zeros = 0, nans = 0, infinities = 0;
  double sum = 0, squares = 0;
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();

  void Add(double v) {
    if (!std::isfinite(v)) {
      ++(std::isnan(v) ? nans : infinities);
      return;
    }
    zeros += v == 0;
    sum += v;
    squares += v * v;
    least = std::min(least, v);
    most = std::max(most, v);
  }
};

// Floats in rows of kLanes, each lane with sums of its own: no addition waits for the one before. Rows with an element
// that is not finite are added one by one.
void AddFloats(const float* x, int64_t n, Sums* sums) {
  constexpr int64_t kLanes = 16;
  double sum[kLanes] = {}, squares[kLanes] = {};
  float least[kLanes], most[kLanes], zeros[kLanes] = {};
  std::fill_n(least, kLanes, std::numeric_limits<float>::infinity());
  std::fill_n(most, kLanes, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    float strange[kLanes], any = 0;
    for (int64_t l = 0; l < kLanes; ++l) strange[l] = x[i + l] * 0;  // a NaN where it is not finite
    for (int64_t l = 0; l < kLanes; ++l) any += strange[l];
    if (any != 0 || std::isnan(any)) {
      for (int64_t l = 0; l < kLanes; ++l) sums->Add(x[i + l]);
      continue;
    }
    for (int64_t l = 0; l < kLanes; ++l) {
      const float v = x[i + l];
      sum[l] += v;
      squares[l] += static_cast<double>(v) * v;
      least[l] = v < least[l] ? v : least[l];
      most[l] = v > most[l] ? v : most[l];
      zeros[l] += v == 0 ? 1.0f : 0.0f;
    }
    if (i % (1 << 24) == 0) {  // before a lane's count is too large for its type
      for (float& z : zeros) sums->zeros += static_cast<int64_t>(std::exchange(z, 0.0f));
    }
  }
  for (int64_t l = 0; l < kLanes; ++l) {
    sums->sum += sum[l];
    sums->squares += squares[l];
    sums->least = std::min<double>(sums->least, least[l]);
    sums->most = std::max<double>(sums->most, most[l]);
    sums->zeros += static_cast<int64_t>(zeros[l]);
  }
  for (; i < n; ++i) sums->Add(x[i]);
}

std::string Number(double v) { return std::isfinite(v) ? absl::StrFormat("%.9g", v) : "null"; }

}  // namespace

Statistics StatisticsOf(const TensorView& tensor) {
  Statistics s;
  s.elements = tensor.type.elements();
  Sums sums;
  if (tensor.type.dtype == DType::kF32) {
    AddFloats(tensor.as<float>(), s.elements, &sums);
  } else {
    for (int64_t i = 0; i < s.elements; ++i) sums.Add(LoadAsDouble(tensor.type.dtype, tensor.data, i));
  }
  s.zeros = sums.zeros;
  s.nans = sums.nans;
  s.infinities = sums.infinities;
  s.crc = Crc32c(tensor.data, static_cast<size_t>(tensor.type.bytes()));
  const auto n = static_cast<double>(s.elements - s.nans - s.infinities);
  if (n == 0) {
    s.mean = s.deviation = s.least = s.most = s.norm = std::numeric_limits<double>::quiet_NaN();
    return s;
  }
  s.mean = sums.sum / n;
  s.deviation = std::sqrt(std::max(0.0, sums.squares / n - s.mean * s.mean));
  s.least = sums.least;
  s.most = sums.most;
  s.norm = std::sqrt(sums.squares);
  return s;
}

std::string ToString(const Statistics& s) {
  const double share = s.elements == 0 ? 0 : 100 * static_cast<double>(s.zeros) / static_cast<double>(s.elements);
  const int64_t finite = s.elements - s.nans - s.infinities;
  const bool some = finite > 0 && finite < s.elements;
  return absl::StrFormat("mean %.4g  std %.4g  min %.4g  max %.4g  |x| %.4g  zero %.1f%%  nan %d  inf %d%s", s.mean,
                         s.deviation, s.least, s.most, s.norm, share, s.nans, s.infinities,
                         some ? absl::StrCat("  (mean to |x|: of the ", finite, " finite)") : "");
}

std::string ToJson(const Statistics& s) {
  return absl::StrFormat(
      R"({"elements":%d,"mean":%s,"std":%s,"min":%s,"max":%s,"norm":%s,"zeros":%d,"nan":%d,"inf":%d,"crc":"%08x"})",
      s.elements, Number(s.mean), Number(s.deviation), Number(s.least), Number(s.most), Number(s.norm), s.zeros, s.nans,
      s.infinities, s.crc);
}

}  // namespace mslua::endpoint
