#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/parallel_for.h"
#include "core/base/processor.h"
#include "core/base/rng.h"
#include "core/base/round_up.h"
#include "core/base/shape.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType t = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(Name(t)), t);
    EXPECT_EQ(ParseDType(LongName(t)), t);
  }
  EXPECT_FALSE(ParseDType("f33").has_value());
}

TEST(RoundUp, GivesTheNextMultiple) {
  EXPECT_EQ(CeilDiv(0, 64), 0);
  EXPECT_EQ(CeilDiv(64, 64), 1);
  EXPECT_EQ(CeilDiv(65, 64), 2);
  EXPECT_EQ(RoundUp(0, 64), 0);
  EXPECT_EQ(RoundUp(64, 64), 64);
  EXPECT_EQ(RoundUp(65, 64), 128);
}

float TooSmall() {
  volatile float x = 1.5e-38f;
  return x * 0.1f;
}

TEST(Processor, FlushesDenormalsInAThreadAndThoseItStarts) {
  float here = 1, below = 1;
  F16 half;
  std::thread([&] {
    FlushDenormals();
    here = TooSmall();
    half = F16(0x1p-24f);
    std::thread([&] { below = TooSmall(); }).join();
  }).join();
  EXPECT_EQ(here, 0);
  EXPECT_EQ(below, 0);
  EXPECT_EQ(static_cast<float>(half), 0x1p-24f);  // a denormal of float16 is none of float32
  EXPECT_GT(TooSmall(), 0);
}

// Threads whose own setting is older than the caller's.
TEST(Processor, ThreadsThatComputeTreatDenormalsAsTheCallerDoes) {
  std::thread([] {
    SetComputeThreads(4);
    const auto results = [] {
      std::vector<float> small(4);
      ParallelFor(4, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) small[i] = TooSmall();
      });
      return small;
    };
    const std::vector<float> zeros(4, 0), kept = results();
    EXPECT_GT(*std::min_element(kept.begin(), kept.end()), 0);
    FlushDenormals();
    EXPECT_EQ(results(), zeros);
    SetDenormals(true);
    EXPECT_EQ(results(), kept);
    SetDenormals(false);
    EXPECT_TRUE(FlushesDenormals());
    EXPECT_EQ(results(), zeros);
  }).join();
}

TEST(DType, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    F16 h;
    h.bits = static_cast<uint16_t>(bits);
    const float f = h;
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(F16(f))));
    } else {
      ASSERT_EQ(F16(f).bits, bits);
    }
  }
}

TEST(DType, EveryHalfHasItsValueAndRoundsFromItsNeighbourhood) {
  const auto value = [](uint32_t bits) {
    F16 h;
    h.bits = static_cast<uint16_t>(bits);
    return static_cast<float>(h);
  };
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const int exponent = static_cast<int>(bits >> 10), mantissa = static_cast<int>(bits & 0x3ff);
    const double exact = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(value(bits), exact);
    ASSERT_EQ(value(bits | 0x8000), -exact);
    // Half-way to the next one, which after the largest is 65536 and so infinity.
    const double next = bits == 0x7bff ? 65536 : static_cast<double>(value(bits + 1));
    const auto middle = static_cast<float>((exact + next) / 2);
    ASSERT_EQ(F16(middle).bits, bits + (bits & 1));
    ASSERT_EQ(F16(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(F16(-std::nextafter(middle, 1e9f)).bits, (bits + 1) | 0x8000);
  }
}

TEST(DType, SixteenBitFloatsRoundToNearestEven) {
  EXPECT_EQ(static_cast<float>(F16(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(static_cast<float>(F16(1.0f + 0x3p-11f)), 1.0f + 0x1p-9f);
  EXPECT_EQ(static_cast<float>(F16(65520.0f)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(static_cast<float>(F16(65519.0f)), 65504.0f);
  EXPECT_EQ(static_cast<float>(BF16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(static_cast<float>(BF16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(static_cast<float>(BF16(std::nanf("")))));
}

// Known answers of the authors' reference implementation (Random123 kat_vectors).
TEST(Rng, PhiloxKnownAnswers) {
  EXPECT_EQ(Philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~0ull, ~0ull, ~0ull), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, AnyPartIsThePartOfTheWhole) {
  std::vector<float> uniform(101), normal(101);
  FillUniform(7, 3, 0, 101, uniform.data());
  FillNormal(7, 3, 0, 101, normal.data());
  for (uint64_t begin : {0u, 1u, 2u, 3u, 5u, 50u}) {
    std::vector<float> part(40);
    FillUniform(7, 3, begin, 40, part.data());
    for (int i = 0; i < 40; ++i) ASSERT_EQ(part[i], uniform[begin + i]);
    FillNormal(7, 3, begin, 40, part.data());
    for (int i = 0; i < 40; ++i) {
      ASSERT_EQ(part[i], normal[begin + i]);
      ASSERT_EQ(NormalAt(7, 3, begin + i), normal[begin + i]);
      ASSERT_EQ(UniformAt(7, 3, begin + i), uniform[begin + i]);
    }
  }
}

TEST(Rng, NormalsAreThoseOfTheMathLibrary) {
  std::vector<float> normal(4096);
  FillNormal(3, 5, 0, normal.size(), normal.data());
  for (uint64_t i = 0; i < normal.size(); i += 2) {
    const auto words = Philox(3, 5, i / 4);
    const double u1 = (words[i % 4] + 1.0) * 0x1p-32, u2 = words[i % 4 + 1] * 0x1p-32;
    const double radius = std::sqrt(-2 * std::log(u1)), angle = 2 * M_PI * u2;
    ASSERT_FLOAT_EQ(normal[i], static_cast<float>(radius * std::cos(angle))) << i;
    ASSERT_FLOAT_EQ(normal[i + 1], static_cast<float>(radius * std::sin(angle))) << i;
  }
}

TEST(Rng, MomentsOfTheNormal) {
  std::vector<float> v(200000);
  FillNormal(1, StreamOf("w"), 0, v.size(), v.data());
  double sum = 0, squares = 0;
  for (float x : v) sum += x, squares += static_cast<double>(x) * x;
  EXPECT_NEAR(sum / v.size(), 0.0, 0.01);
  EXPECT_NEAR(squares / v.size(), 1.0, 0.02);
}

TEST(ParallelFor, CoversTheRangeOnce) {
  for (int64_t n : {0, 1, 7, 64, 1000}) {
    for (int64_t grain : {1, 8, 2000}) {
      std::vector<int> hits(n, 0);
      ParallelFor(n, grain, [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) ++hits[i];
      });
      for (int h : hits) ASSERT_EQ(h, 1);
    }
  }
}

TEST(Shape, TextAndStrides) {
  EXPECT_EQ(ToString(TensorType{DType::kF32, {8, 16}}), "f32[8,16]");
  EXPECT_EQ(ToString(TensorType{DType::kI64, {}}), "i64[]");
  EXPECT_EQ(RowMajorStrides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(NumElements({}), 1);
}

}  // namespace
}  // namespace mslua
