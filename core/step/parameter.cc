#include "core/step/parameter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "core/base/text.h"

namespace mslua {
namespace {

// Connections into and out of a unit: of a matrix [out, in], of a kernel [out, in, h, w] times its area.
Status Fans(const Shape& shape, double* in, double* out) {
  if (shape.size() < 2)
    return absl::InvalidArgumentError(absl::StrCat("needs a shape of two or more dimensions, got ", ToString(shape)));
  double area = 1;
  for (size_t i = 2; i < shape.size(); ++i) area *= static_cast<double>(shape[i]);
  *in = static_cast<double>(shape[1]) * area;
  *out = static_cast<double>(shape[0]) * area;
  return absl::OkStatus();
}

// A value of the standard normal distribution between a and b: draws again, from a stream of their own, until it is.
double TruncatedNormalAt(uint64_t seed, const std::string& stream, uint64_t i, double a, double b) {
  for (uint64_t attempt = 0; attempt < 1000; ++attempt) {
    const double v = NormalAt(seed, StreamOf(stream, attempt), i);
    if (v >= a && v <= b) return v;
  }
  return std::min(std::max(0.0, a), b);
}

}  // namespace

const std::vector<std::string>& InitializerNames() {
  static const auto* names = new std::vector<std::string>{
      "zeros",          "ones",          "constant",   "identity", "normal", "uniform", "truncated_normal",
      "xavier_uniform", "xavier_normal", "he_uniform", "he_normal"};
  return *names;
}

std::string InitializerNamed(const std::string& name) {
  const auto plain = [](absl::string_view s) { return absl::AsciiStrToLower(absl::StrReplaceAll(s, {{"_", ""}})); };
  const std::string wanted = plain(name);
  for (const std::string& known : InitializerNames()) {
    if (plain(known) == wanted) return known;
  }
  return wanted == "zero" ? "zeros" : wanted == "one" ? "ones" : name;
}

std::string InitializerProblem(const std::string& name) {
  const auto& names = InitializerNames();
  if (std::find(names.begin(), names.end(), InitializerNamed(name)) != names.end()) return "";
  return absl::StrCat("unknown initializer '", name, "'", DidYouMean(absl::AsciiStrToLower(name), names),
                      ": expected one of ", absl::StrJoin(names, ", "));
}

namespace {

// Calls f(place in the part, place in the whole, n) for runs that are the part at `begin` of a tensor of `whole` sizes,
// on the compute threads.
template <class F>
void ForEachRun(absl::Span<const int64_t> whole, absl::Span<const int64_t> begin, const Shape& part, F f) {
  constexpr int64_t kGrain = 16384;
  const Shape strides = RowMajorStrides(whole);
  // Inner dimensions that are whole lie in one run with the one before them.
  int64_t d = static_cast<int64_t>(part.size()), run = 1, start = 0;
  while (d > 0) {
    run *= part[--d];
    if (part[d] != whole[d]) break;
  }
  for (size_t k = 0; k < part.size(); ++k) start += begin[k] * strides[k];
  const int64_t runs = run > 0 ? NumElements(part) / run : 0;
  if (runs == 1) {
    ParallelFor(run, kGrain, [&](int64_t first, int64_t last) { f(first, start + first, last - first); });
    return;
  }
  ParallelFor(runs, std::max<int64_t>(1, kGrain / std::max<int64_t>(run, 1)), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      int64_t rest = r, index = start;
      for (int64_t k = d - 1; k >= 0; --k) {
        index += rest % part[k] * strides[k];
        rest /= part[k];
      }
      f(r * run, index, run);
    }
  });
}

// Elements [begin, begin + n) of a random sequence, normal or uniform in [-1, 1), times `spread` plus `mean`, to `to`
// of `out`.
void StoreRandom(bool normal, uint64_t seed, uint64_t stream, int64_t begin, int64_t n, double spread, double mean,
                 const TensorView& out, int64_t to) {
  constexpr int64_t kTile = 1024;
  float numbers[kTile];
  for (int64_t at = 0; at < n; at += kTile) {
    const int64_t count = std::min(kTile, n - at);
    (normal ? FillNormal : FillUniform)(seed, stream, static_cast<uint64_t>(begin + at), static_cast<uint64_t>(count),
                                        numbers);
    const auto value = [&](int64_t i) { return mean + spread * (normal ? numbers[i] : 2.0 * numbers[i] - 1); };
    if (out.type.dtype == DType::kF32) {
      float* y = out.as<float>() + to + at;
      for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(value(i));
    } else {
      for (int64_t i = 0; i < count; ++i) StoreDouble(out.type.dtype, out.data, to + at + i, value(i));
    }
  }
}

}  // namespace

Status Fill(const Initializer& init, uint64_t seed, const std::string& stream, const TensorView& out) {
  return Fill(init, seed, stream, out.type, Shape(out.type.shape.size(), 0), out);
}

Status Fill(const Initializer& init, uint64_t seed, const std::string& stream, const TensorType& whole,
            absl::Span<const int64_t> begin, const TensorView& part) {
  if (init.kind == "read") return init.read(whole, begin, part);
  const DType dtype = whole.dtype;
  const auto fill = [&](auto value_at) {
    ForEachRun(whole.shape, begin, part.type.shape, [&](int64_t to, int64_t index, int64_t n) {
      for (int64_t i = 0; i < n; ++i) StoreDouble(dtype, part.data, to + i, value_at(index + i));
    });
    return absl::OkStatus();
  };
  if (init.kind == "tensor") {
    const int64_t size = SizeOf(dtype);
    ForEachRun(whole.shape, begin, part.type.shape, [&](int64_t to, int64_t index, int64_t n) {
      std::memcpy(static_cast<char*>(part.data) + to * size,
                  static_cast<const char*>(init.constant.data.get()) + index * size, static_cast<size_t>(n * size));
    });
    return absl::OkStatus();
  }
  if (init.kind == "zeros") {  // of every type: bytes of zero
    const int64_t size = SizeOf(dtype);
    ForEachRun(whole.shape, begin, part.type.shape, [&](int64_t to, int64_t, int64_t n) {
      std::memset(static_cast<char*>(part.data) + to * size, 0, static_cast<size_t>(n * size));
    });
    return absl::OkStatus();
  }
  if (init.kind == "ones") return fill([](int64_t) { return 1.0; });
  if (init.kind == "constant") return fill([&](int64_t) { return init.value; });
  if (init.kind == "identity") {
    if (whole.rank() != 2)
      return absl::InvalidArgumentError(
          absl::StrCat("init 'identity': expected two dimensions, got ", ToString(whole.shape)));
    return fill([&](int64_t i) { return i / whole.shape[1] == i % whole.shape[1] ? 1.0 : 0.0; });
  }
  if (init.kind == "truncated_normal") {
    return fill([&](int64_t i) {
      return init.mean + init.sigma * TruncatedNormalAt(seed, stream, static_cast<uint64_t>(i), init.a, init.b);
    });
  }
  // What is left is uniform in [-bound, bound) or normal with that deviation, around mean.
  double spread = 0, mean = 0;
  bool normal = init.kind == "normal";
  if (normal) {
    spread = init.sigma;
    mean = init.mean;
  } else if (init.kind == "uniform") {
    spread = init.scale;
  } else {
    double fan_in, fan_out;
    RETURN_IF_ERROR(Annotate(Fans(whole.shape, &fan_in, &fan_out), absl::StrCat("init '", init.kind, "'")));
    double deviation;
    if (init.kind[0] == 'x') {  // Glorot and Bengio 2010
      deviation = init.gain * std::sqrt(2 / (fan_in + fan_out));
    } else {  // He et al. 2015
      const double slope = init.nonlinearity == "relu" ? 0 : init.negative_slope;
      deviation = std::sqrt(2 / (1 + slope * slope)) / std::sqrt(init.mode == "fan_in" ? fan_in : fan_out);
    }
    normal = init.kind == "xavier_normal" || init.kind == "he_normal";
    spread = normal ? deviation : std::sqrt(3.0) * deviation;
  }
  const uint64_t id = StreamOf(stream);
  ForEachRun(whole.shape, begin, part.type.shape, [&](int64_t to, int64_t index, int64_t n) {
    StoreRandom(normal, seed, id, index, n, spread, mean, part, to);
  });
  return absl::OkStatus();
}

}  // namespace mslua
