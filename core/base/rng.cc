#include "core/base/rng.h"

#include <cmath>

namespace mslua {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

float ToUnit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// The pair of normals of two words; u1 in (0, 1] keeps the logarithm finite.
void BoxMuller(uint32_t a, uint32_t b, float* first, float* second) {
  const double u1 = (static_cast<double>(a) + 1.0) * 0x1p-32;
  const double u2 = static_cast<double>(b) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u1));
  *first = static_cast<float>(radius * std::cos(kTwoPi * u2));
  *second = static_cast<float>(radius * std::sin(kTwoPi * u2));
}

}  // namespace

std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream, uint64_t index) {
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
  std::array<uint32_t, 4> block{};
  for (uint64_t k = 0; k < n; ++k) {
    const uint64_t i = begin + k;
    if (k == 0 || i % 4 == 0) block = Philox(seed, stream, i / 4);
    out[k] = ToUnit(block[i % 4]);
  }
}

void FillNormal(uint64_t seed, uint64_t stream, uint64_t begin, uint64_t n, float* out) {
  float four[4];
  for (uint64_t k = 0; k < n; ++k) {
    const uint64_t i = begin + k;
    if (k == 0 || i % 4 == 0) {
      const auto w = Philox(seed, stream, i / 4);
      BoxMuller(w[0], w[1], &four[0], &four[1]);
      BoxMuller(w[2], w[3], &four[2], &four[3]);
    }
    out[k] = four[i % 4];
  }
}

uint64_t UniformIntAt(uint64_t seed, uint64_t stream, uint64_t i, uint64_t bound) {
  const auto w = Philox(seed, stream, i / 2);
  const int base = static_cast<int>(i % 2) * 2;
  const uint64_t word = static_cast<uint64_t>(w[base]) << 32 | w[base + 1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

}  // namespace mslua
