#include "core/base/rng.h"

#include <algorithm>
#include <cmath>

#include "absl/base/casts.h"
#include "core/base/target_clones.h"

namespace mslua {
namespace {

struct Words {
  uint32_t c0, c1, c2, c3;
};

inline Words PhiloxWords(uint64_t seed, uint64_t stream, uint64_t index) {
  constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u;
  constexpr uint32_t kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kM0) * c0;
    const uint64_t p1 = static_cast<uint64_t>(kM1) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += kW0;
    k1 += kW1;
  }
  return {c0, c1, c2, c3};
}

// Through int32_t, which vectors of every machine convert.
inline float ToUnit(uint32_t word) { return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f; }

// Fills come in groups of blocks whose loops the compiler turns into vector instructions. Nothing but operations that
// IEEE 754 defines to the last bit, none contracted, so that every machine makes the same numbers.
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=off")
#endif

constexpr int kBlocks = 64, kWords = 4 * kBlocks;

// c0 + c1 z + c2 z^2 + ...
inline double Polynomial(double, double c) { return c; }
template <typename... C>
inline double Polynomial(double z, double c, C... higher) {
  return c + z * Polynomial(z, higher...);
}

// 1 / n!
constexpr double Inverse(int n) { return n == 0 ? 1 : Inverse(n - 1) / n; }

// log(x) of a normal x > 0, within 2 units in the last place: x = m 2^e with m in [0.70, 1.41], and
// log(m) = 2 artanh(s) with s = (m - 1) / (m + 1).
inline double Log(double x) {
  constexpr uint64_t kOne = 0x3ff0000000000000u, kRootHalf = 0x3fe6a09e667f3bcdu, kMantissa = 0x000fffffffffffffu;
  const uint64_t shifted = absl::bit_cast<uint64_t>(x) + (kOne - kRootHalf);
  const auto e = static_cast<double>(static_cast<int32_t>(shifted >> 52) - 1023);
  const double m = absl::bit_cast<double>((shifted & kMantissa) + kRootHalf);
  const double s = (m - 1) / (m + 1), z = s * s;
  const double series = Polynomial(z, 1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17,
                                   1.0 / 19, 1.0 / 21, 1.0 / 23);
  return e * 0x1.62e42fefa39efp-1 + 2 * s * series;
}

// The normals of pairs of words, u1 in (0, 1] and u2 in [0, 1): sqrt(-2 log u1) times cosine and sine of 2 pi u2. The
// angle is a quarter of a turn, taken exactly, and what is left, at most pi / 4, for which Taylor's series is short.
inline void BoxMuller(uint32_t a, uint32_t b, float* first, float* second) {
  const double radius = std::sqrt(-2.0 * Log((static_cast<double>(a) + 1.0) * 0x1p-32));
  const uint32_t quarter = (b + 0x20000000u) >> 30;
  const double turn = static_cast<double>(static_cast<int32_t>(b - (quarter << 30))) * 0x1p-30;  // of a quarter
  const double x = turn * 0x1.921fb54442d18p+0, z = x * x;
  const double sine = x * Polynomial(z, 1, -Inverse(3), Inverse(5), -Inverse(7), Inverse(9), -Inverse(11), Inverse(13),
                                     -Inverse(15), Inverse(17));
  const double cosine = Polynomial(z, 1, -Inverse(2), Inverse(4), -Inverse(6), Inverse(8), -Inverse(10), Inverse(12),
                                   -Inverse(14), Inverse(16), -Inverse(18));
  // No branches, which would keep the loop from becoming vectors: odd quarters swap, signs are the highest bits.
  const uint64_t swap = -static_cast<uint64_t>(quarter & 1), c = absl::bit_cast<uint64_t>(cosine),
                 s = absl::bit_cast<uint64_t>(sine);
  const uint64_t c_sign = static_cast<uint64_t>((quarter + 1) & 2) << 62, s_sign = static_cast<uint64_t>(quarter & 2)
                                                                                   << 62;
  *first = static_cast<float>(radius * absl::bit_cast<double>(((c & ~swap) | (s & swap)) ^ c_sign));
  *second = static_cast<float>(radius * absl::bit_cast<double>(((s & ~swap) | (c & swap)) ^ s_sign));
}

// The words of blocks [first, first + kBlocks): words[w][j] is word w of block first + j.
MSLUA_VECTORS void PhiloxBlocks(uint64_t seed, uint64_t stream, uint64_t first, uint32_t (*words)[kBlocks]) {
  for (int j = 0; j < kBlocks; ++j) {
    const Words w = PhiloxWords(seed, stream, first + static_cast<uint64_t>(j));
    words[0][j] = w.c0, words[1][j] = w.c1, words[2][j] = w.c2, words[3][j] = w.c3;
  }
}

MSLUA_VECTORS void NormalBlocks(const uint32_t (*words)[kBlocks], float (*numbers)[kBlocks]) {
  for (int j = 0; j < kBlocks; ++j) BoxMuller(words[0][j], words[1][j], &numbers[0][j], &numbers[1][j]);
  for (int j = 0; j < kBlocks; ++j) BoxMuller(words[2][j], words[3][j], &numbers[2][j], &numbers[3][j]);
}

MSLUA_VECTORS void UniformBlocks(const uint32_t (*words)[kBlocks], float (*numbers)[kBlocks]) {
  for (int w = 0; w < 4; ++w) {
    for (int j = 0; j < kBlocks; ++j) numbers[w][j] = ToUnit(words[w][j]);
  }
}

// Number w of block j is element 4 j + w.
MSLUA_VECTORS void Interleave(const float (*numbers)[kBlocks], float* out) {
  for (int j = 0; j < kBlocks; ++j) {
    out[4 * j] = numbers[0][j], out[4 * j + 1] = numbers[1][j], out[4 * j + 2] = numbers[2][j],
            out[4 * j + 3] = numbers[3][j];
  }
}

#if !defined(__clang__)
#pragma GCC pop_options
#endif

// Elements [begin, begin + n) of the sequence that `make` makes of the words of blocks.
template <typename Make>
void FillBlocks(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t n, float* out, Make make) {
  uint32_t words[4][kBlocks];
  float numbers[4][kBlocks];
  for (uint64_t at = begin / 4 * 4; at < begin + n; at += kWords) {
    PhiloxBlocks(seed, stream, at / 4, words);
    make(words, numbers);
    const uint64_t from = std::max(at, begin), to = std::min(at + kWords, begin + n);
    if (to - from == kWords) {
      Interleave(numbers, out + (at - begin));
    } else {
      float group[kWords];
      Interleave(numbers, group);
      std::copy(group + (from - at), group + (to - at), out + (from - begin));
    }
  }
}

}  // namespace

std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream, uint64_t index) {
  const Words w = PhiloxWords(seed, stream, index);
  return {w.c0, w.c1, w.c2, w.c3};
}

// FNV-1a, 64 bits, over the name and then the step's eight bytes.
uint64_t StreamOf(absl::string_view name, uint64_t step) {
  uint64_t h = 0xcbf29ce484222325u;
  auto mix = [&h](uint8_t byte) { h = (h ^ byte) * 0x100000001b3u; };
  for (char c : name) mix(static_cast<uint8_t>(c));
  for (int i = 0; i < 8; ++i) mix(static_cast<uint8_t>(step >> (8 * i)));
  return h;
}

float UniformAt(uint64_t seed, uint64_t stream, uint64_t i) { return ToUnit(Philox(seed, stream, i / 4)[i % 4]); }

float NormalAt(uint64_t seed, uint64_t stream, uint64_t i) {
  const auto w = Philox(seed, stream, i / 4);
  float pair[2];
  const int base = (i % 4) < 2 ? 0 : 2;
  BoxMuller(w[base], w[base + 1], &pair[0], &pair[1]);
  return pair[i % 2];
}

void FillUniform(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t n, float* out) {
  FillBlocks(seed, stream, begin, n, out, UniformBlocks);
}

void FillNormal(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t n, float* out) {
  FillBlocks(seed, stream, begin, n, out, NormalBlocks);
}

uint64_t UniformIntAt(uint64_t seed, uint64_t stream, uint64_t i, uint64_t bound) {
  const auto w = Philox(seed, stream, i / 2);
  const int base = static_cast<int>(i % 2) * 2;
  const uint64_t word = static_cast<uint64_t>(w[base]) << 32 | w[base + 1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

}  // namespace mslua
