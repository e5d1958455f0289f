#include "core/kernels/select/bilinear_check.h"

#include <cmath>
#include <new>
#include <random>
#include <vector>

#include "core/kernels/guarded_memory.h"

namespace mslua {
namespace {

using Numbers = std::vector<double>;

// Neither they nor sums of a few of them divide the sizes of matrices, so that rows and columns differ.
constexpr int64_t kWeights = 1021, kPrimes[] = {65537, 1048583, 16777259};

// After how many an operand repeats its values: more than the terms of a sum, where there is such a prime. No product
// is then in a sum twice.
int64_t ValuesFor(int64_t terms) {
  for (const int64_t prime : kPrimes) {
    if (terms < prime) return prime;
  }
  return *std::rbegin(kPrimes);
}

// What the operands repeat. In bf16 -1 or 1, or 0 where sums of so many would be too large.
template <class T>
std::vector<T> Values(int64_t terms, uint32_t seed) {
  constexpr double kDeviation = 32;  // of a sum: an eighth of 256, up to which bf16 has every whole number
  const int64_t count = ValuesFor(terms);
  const double share =
      std::min(1.0, kDeviation * std::sqrt(static_cast<double>(std::min(terms, count))) / static_cast<double>(terms));
  std::mt19937 random(seed);
  std::vector<T> out(count);
  for (T& v : out) {
    const uint32_t bits = random();
    if constexpr (sizeof(T) == 2)
      v = T(static_cast<double>(bits >> 1) >= share * 0x1p31 ? 0.0f : (bits & 1) != 0 ? 1.0f : -1.0f);
    else
      v = static_cast<T>(bits >> 8) * 0x1p-23f - 1;
  }
  return out;
}

template <class T>
void Repeat(const std::vector<T>& values, int64_t total, char* to) {
  const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
  for (int64_t at = 0; at < total; at += bytes)
    std::memcpy(to + at, values.data(), static_cast<size_t>(std::min(bytes, total - at)));
}

// Odd numbers from -127 to 127.
Numbers Weights(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Numbers out(count);
  for (int64_t i = 0; i < count; ++i)
    out[i] = i < kWeights ? 2.0 * static_cast<double>(random() % 128) - 127 : out[i - kWeights];
  return out;
}

template <class T>
double ToDouble(T v) {
  return static_cast<double>(static_cast<float>(v));
}

// to[j] += sum over i of weights[i] x[i, j], of a matrix with `columns` columns.
template <class T>
void AddRows(const T* x, int64_t rows, int64_t columns, const double* weights, double* to) {
  for (int64_t i = 0; i < rows; ++i, x += columns) {
    if (weights[i] == 0) continue;
    for (int64_t j = 0; j < columns; ++j) to[j] += weights[i] * ToDouble(x[j]);
  }
}

template <class T>
double Dot(const T* x, const double* weights, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int64_t l = 0; l < 8; ++l) sums[l] += weights[i + l] * ToDouble(x[i + l]);
  }
  for (; i < n; ++i) sums[0] += weights[i] * ToDouble(x[i]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}
double Dot(const double* x, const double* weights, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * weights[i];
  return sum;
}

// The matrix [rows, columns], or its transpose as it is stored, times a vector of `columns` numbers.
template <class T>
void Multiply(const T* x, int64_t rows, int64_t columns, bool transposed, const double* v, double* to) {
  if (transposed) {
    std::fill(to, to + rows, 0.0);
    AddRows(x, columns, rows, v, to);
  } else {
    for (int64_t i = 0; i < rows; ++i) to[i] = Dot(x + i * columns, v, columns);
  }
}

// What a result should sum to, what it does, and by how much a sum may differ.
struct Sums {
  Numbers want, got;
  double elements = 1;  // of the result, in one sum
  int weightings = 1;   // each multiplies by a weight
};

template <class T, class R>
Sums OfProduct(const MatrixProduct& p, const T* a, const T* b, const R* y) {
  Sums s;
  s.elements = static_cast<double>(p.n);
  s.want.resize(p.batch * p.m);
  s.got.resize(p.batch * p.m);
  const Numbers weights = Weights(p.n, 3);
  Numbers of_b(p.k);
  for (int64_t i = 0; i < p.batch; ++i, a += p.m * p.k, b += p.k * p.n, y += p.m * p.n) {
    Multiply(b, p.k, p.n, p.transpose_b, weights.data(), of_b.data());
    Multiply(a, p.m, p.k, p.transpose_a, of_b.data(), s.want.data() + i * p.m);
    Multiply(y, p.m, p.n, false, weights.data(), s.got.data() + i * p.m);
  }
  return s;
}

// The weighted sum of the images, as [pixels, channels].
template <class T>
Numbers SumOfImages(const Image& image, const T* x, const Numbers& weights) {
  const int64_t each = image.pixels() * image.c;
  Numbers sum(each);
  AddRows(x, image.n, each, weights.data(), sum.data());
  if (image.channels_last) return sum;
  Numbers turned(each);
  for (int64_t c = 0; c < image.c; ++c) {
    for (int64_t p = 0; p < image.pixels(); ++p) turned[p * image.c + c] = sum[c * image.pixels() + p];
  }
  return turned;
}

// Each pixel's weighted sum of channels.
Numbers SumOfChannels(const Numbers& x, int64_t channels, const Numbers& weights) {
  Numbers sums(x.size() / channels);
  for (size_t p = 0; p < sums.size(); ++p) sums[p] = Dot(x.data() + p * channels, weights.data(), channels);
  return sums;
}

// The weights' sums over one of their two channels, as [taps, channels of the other].
template <class T>
Numbers SumOfFilters(const Convolution& c, const T* w, const Numbers& weights, bool over_results) {
  const int64_t in = c.in_per_group(), taps = c.window.size[0] * c.window.size[1],
                channels = over_results ? c.x.c : c.y.c;
  Numbers sums(taps * channels);
  for (int64_t o = 0; o < c.y.c; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const int64_t x_channel = o / c.out_per_group() * in + i;
      for (int64_t t = 0; t < taps; ++t) {
        sums[t * channels + (over_results ? x_channel : o)] +=
            weights[over_results ? o : x_channel] * ToDouble(w[(o * in + i) * taps + t]);
      }
    }
  }
  return sums;
}

// Calls f(pixel of x, pixel of y, tap) for all that meet.
template <class F>
void ForEachPair(const Convolution& c, F f) {
  for (int64_t p = 0; p < c.y.h; ++p) {
    for (int64_t q = 0; q < c.y.w; ++q) {
      ForEachTap(c.window, c.x.h, c.x.w, p, q, [&](int64_t row, int64_t column, int64_t i, int64_t j) {
        f(row * c.x.w + column, p * c.y.w + q, i * c.window.size[1] + j);
      });
    }
  }
}

// Sums over images and over the result's channels, for each pixel.
template <class T>
Sums OfImages(const Convolution& c, bool forward, const T* from, const T* w, const T* to) {
  const Image &in = forward ? c.x : c.y, &out = forward ? c.y : c.x;
  const Numbers images = Weights(c.x.n, 3), channels = Weights(out.c, 4);
  const Numbers x = SumOfImages(in, from, images), filters = SumOfFilters(c, w, channels, forward);
  Sums s;
  s.elements = static_cast<double>(out.n * out.c);
  s.weightings = 2;
  s.got = SumOfChannels(SumOfImages(out, to, images), out.c, channels);
  s.want.resize(out.pixels());
  ForEachPair(c, [&](int64_t x_pixel, int64_t y_pixel, int64_t tap) {
    s.want[forward ? y_pixel : x_pixel] +=
        Dot(x.data() + (forward ? x_pixel : y_pixel) * in.c, filters.data() + tap * in.c, in.c);
  });
  return s;
}

// One image's sums over the channels [first, first + count), for each pixel.
template <class T>
Numbers SumOfGroup(const Image& image, const T* x, int64_t first, int64_t count, const double* weights) {
  Numbers sums(image.pixels());
  if (image.channels_last) {
    for (int64_t p = 0; p < image.pixels(); ++p) sums[p] = Dot(x + p * image.c + first, weights, count);
  } else {
    AddRows(x + first * image.pixels(), count, image.pixels(), weights, sums.data());
  }
  return sums;
}

// Sums over both kinds of channels, for each place of the window.
template <class T>
Sums OfWeights(const Convolution& c, const T* x, const T* dy, const T* dw) {
  constexpr double kMostWork = 1e8;
  const int64_t in = c.in_per_group(), out = c.out_per_group(), taps = c.window.size[0] * c.window.size[1];
  const double of_group = static_cast<double>(c.x.n * c.y.pixels() * taps);
  const int64_t most = std::max<int64_t>(2, static_cast<int64_t>(kMostWork / of_group)),
                groups = std::min(c.group, most);
  Numbers y_weights(c.y.c);
  const Numbers x_weights = Weights(in, 3), drawn = Weights(c.y.c, 4);
  Sums s;
  s.elements = static_cast<double>(groups * out * in);
  s.weightings = 2;
  s.want.resize(taps);
  s.got.resize(taps);
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t g = groups == 1 ? 0 : i * (c.group - 1) / (groups - 1);
    std::copy_n(drawn.begin() + g * out, out, y_weights.begin() + g * out);
    for (int64_t n = 0; n < c.x.n; ++n) {
      const Numbers a = SumOfGroup(c.x, x + n * c.x.pixels() * c.x.c, g * in, in, x_weights.data()),
                    b = SumOfGroup(c.y, dy + n * c.y.pixels() * c.y.c, g * out, out, y_weights.data() + g * out);
      ForEachPair(c, [&](int64_t x_pixel, int64_t y_pixel, int64_t tap) { s.want[tap] += a[x_pixel] * b[y_pixel]; });
    }
  }
  for (int64_t o = 0; o < c.y.c; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t t = 0; t < taps; ++t) {
        const double v = ToDouble(dw[(o * in + i) * taps + t]);
        // Groups that are not summed are at least numbers.
        if (y_weights[o] != 0 || !std::isfinite(v)) s.got[t] += y_weights[o] * x_weights[i] * v;
      }
    }
  }
  return s;
}

template <class T>
Verdict Check(const Bilinear& b, Kernel& kernel) {
  const auto bytes_of = [&](int i) { return b.elements(i) * SizeOf(i == 2 ? b.result : b.type); };
  constexpr int64_t kMostBytes = int64_t{4} << 30;
  if (bytes_of(0) + bytes_of(1) + bytes_of(2) + kernel.scratch_bytes() > kMostBytes) return Verdict::kUnchecked;
  const GuardedMemory first(bytes_of(0), GuardedMemory::kNaN), second(bytes_of(1), GuardedMemory::kNaN),
      result(bytes_of(2), GuardedMemory::kNaN), scratch(kernel.scratch_bytes(), GuardedMemory::kNaN);
  if (!first.valid() || !second.valid() || !result.valid() || !scratch.valid()) return Verdict::kUnchecked;
  Repeat(Values<T>(b.terms(), 1), bytes_of(0), first.data());
  Repeat(Values<T>(b.terms(), 2), bytes_of(1), second.data());
  const void* const inputs[] = {first.data(), second.data()};
  void* const outputs[] = {result.data()};
  if (!kernel.Run({inputs, outputs, scratch.data()}).ok()) return Verdict::kWrong;
  if (!result.intact() || !scratch.intact()) return Verdict::kWrong;

  const T *a = reinterpret_cast<const T*>(first.data()), *c = reinterpret_cast<const T*>(second.data()),
          *y = reinterpret_cast<const T*>(result.data());
  Sums s;
  switch (b.op) {
    case BilinearOp::kProduct:
      s = b.result == b.type ? OfProduct(b.product, a, c, y)
                             : OfProduct(b.product, a, c, reinterpret_cast<const float*>(y));
      break;
    case BilinearOp::kConvolution:
    case BilinearOp::kGradInput:
      s = OfImages(b.convolution, b.op == BilinearOp::kConvolution, a, c, y);
      break;
    case BilinearOp::kGradWeight:
      s = OfWeights(b.convolution, a, c, y);
  }
  double tolerance = 0;
  if (sizeof(T) == 4) {
    // Of sums of independent errors: numbers from -1 to 1 have variance 1/3, weights 74 squared.
    const double terms = static_cast<double>(b.terms());
    tolerance = (0x1p-18 + 0x1p-22 * std::sqrt(terms)) * std::sqrt(terms * s.elements) / 3 * std::pow(74, s.weightings);
  }
  for (size_t i = 0; i < s.want.size(); ++i) {
    if (!(std::fabs(s.got[i] - s.want[i]) <= tolerance)) return Verdict::kWrong;
  }
  return Verdict::kRight;
}

}  // namespace

Verdict CheckKernel(const Bilinear& b, Kernel& kernel) {
  try {
    return b.type == DType::kF32 ? Check<float>(b, kernel) : Check<BF16>(b, kernel);
  } catch (const std::bad_alloc&) {
    return Verdict::kUnchecked;
  }
}

}  // namespace mslua
