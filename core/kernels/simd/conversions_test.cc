#include "core/kernels/simd/conversions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace mslua {
namespace {

uint32_t BitsOf(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof u);
  return u;
}

TEST(Conversions, EveryHalfIsItsFloat) {
  std::vector<F16> halves(1 << 16);
  std::vector<float> floats(halves.size());
  for (size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<uint16_t>(i);
  ToFloats(halves.data(), static_cast<int64_t>(halves.size()), floats.data());
  for (size_t i = 0; i < halves.size(); ++i) ASSERT_EQ(BitsOf(floats[i]), BitsOf(static_cast<float>(halves[i]))) << i;
}

// All exponents, the fractions at which a half rounds, and random ones.
TEST(Conversions, FloatsRoundAsTheHalfOfOneFloatDoes) {
  std::vector<float> floats;
  std::mt19937 random(1);
  for (uint32_t head = 0; head < 512; ++head) {
    for (uint32_t k = 0; k < 600; ++k) {
      const uint32_t edges[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fefff, 0x7ff000, 0x7fffff};
      const uint32_t fraction = k < 11 ? edges[k] : random() & 0x7fffff;
      const uint32_t bits = head << 23 | fraction;
      float f;
      std::memcpy(&f, &bits, sizeof f);
      floats.push_back(f);
    }
  }
  std::vector<F16> halves(floats.size());
  FromFloats(floats.data(), static_cast<int64_t>(floats.size()), halves.data());
  for (size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(halves[i].bits, F16(floats[i]).bits) << floats[i];
}

template <class T>
void CheckIntegers(T least, T most) {
  std::mt19937_64 random(2);
  for (const int64_t n : {0, 1, 7, 64, 1000}) {
    std::vector<T> in(static_cast<size_t>(n)), back(in.size());
    for (T& v : in) v = static_cast<T>(random());
    if (n > 1) in[0] = least, in[1] = most;
    std::vector<float> floats(in.size());
    ToFloats(in.data(), n, floats.data());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(floats[i], static_cast<float>(in[i]));
    for (float& f : floats) f = static_cast<float>(static_cast<int>(random() % 200)) + 0.75f;
    FromFloats(floats.data(), n, back.data());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(back[i], static_cast<T>(floats[i]));
  }
}

TEST(Conversions, IntegersAreAsStaticCastHasThem) {
  CheckIntegers<int32_t>(INT32_MIN, INT32_MAX);
  CheckIntegers<int64_t>(INT64_MIN, INT64_MAX);
  CheckIntegers<uint8_t>(0, 255);
}

}  // namespace
}  // namespace mslua
