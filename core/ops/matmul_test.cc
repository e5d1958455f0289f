// Products large enough for a processor's tiles: their accuracy against f64, and numbers that are not finite.
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/match.h"
#include "core/base/parallel_for.h"
#include "core/base/processor.h"
#include "core/op/registry.h"
#include "core/ops/testing/sample_run.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

struct Sizes {
  int64_t m, n, k;
  bool ta, tb;
};

// By the kernel of that name, or the first there is where `name` is empty.
template <class T>
std::vector<T> Multiply(const Sizes& s, const std::string& name, const std::vector<T>& a, const std::vector<T>& b) {
  const DType t = DTypeOf<T>::value;
  const auto call =
      testing::MakeCall(*Operators().Find("matmul"),
                        {{t, s.ta ? Shape{s.k, s.m} : Shape{s.m, s.k}}, {t, s.tb ? Shape{s.n, s.k} : Shape{s.k, s.n}}},
                        {{"transpose_a", s.ta}, {"transpose_b", s.tb}});
  std::vector<T> y(s.m * s.n, T(-7.0f));
  const void* const inputs[] = {a.data(), b.data()};
  void* const outputs[] = {y.data()};
  EXPECT_EQ(testing::RunFastKernel(*call, name, inputs, outputs), absl::OkStatus());
  return y;
}

// Root mean square over the elements of the error against f64, relative to the sum of absolute products.
template <class T>
double Error(const Sizes& s, const std::vector<T>& a, const std::vector<T>& b, const std::vector<T>& y) {
  double squares = 0;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0, absolute = 0;
      for (int64_t l = 0; l < s.k; ++l) {
        const double product = static_cast<double>(s.ta ? a[l * s.m + i] : a[i * s.k + l]) *
                               static_cast<double>(s.tb ? b[j * s.k + l] : b[l * s.n + j]);
        sum += product;
        absolute += std::fabs(product);
      }
      const double error = (static_cast<double>(y[i * s.n + j]) - sum) / absolute;
      squares += error * error;
    }
  }
  return std::sqrt(squares / static_cast<double>(s.m * s.n));
}

constexpr Sizes kSizes[] = {{192, 192, 64, false, false}, {210, 181, 300, false, true},  {181, 220, 45, true, false},
                            {141, 289, 129, true, true},  {320, 144, 1000, true, false}, {190, 200, 33, false, false}};

// What training takes is as accurate as f32's multiplications and additions, also where magnitudes differ by 2^20.
TEST(Matmul, AsAccurateAsF32) {
  std::mt19937 random(1);
  for (const Sizes& s : kSizes) {
    for (const int exponents : {0, 20}) {
      const std::vector<float> a = testing::NormalNumbers(s.m * s.k, exponents, random),
                               b = testing::NormalNumbers(s.k * s.n, exponents, random);
      const double ours = Error(s, a, b, Multiply(s, "", a, b)), plain = Error(s, a, b, Multiply(s, "onednn", a, b));
      EXPECT_LE(ours, 1.05 * plain) << s.m << " " << s.n << " " << s.k << " exponents " << exponents;
    }
  }
}

// What generation takes for a token: threads share the rows of a large matrix.
TEST(Matmul, AFewRowsTimesALargeMatrix) {
  std::mt19937 random(1);
  for (const int64_t m : {1, 3, 4}) {
    const Sizes s{m, 709, 129, false, true};
    const std::vector<float> a = testing::NormalNumbers(s.m * s.k, 0, random),
                             b = testing::NormalNumbers(s.k * s.n, 0, random);
    const std::vector<float> y = Multiply(s, "rows", a, b);
    EXPECT_LE(Error(s, a, b, y), 1e-7) << m;
    EXPECT_EQ(Multiply(s, "", a, b), y) << m;
    const int threads = ComputeThreads();
    SetComputeThreads(1);
    EXPECT_EQ(Multiply(s, "rows", a, b), y) << m;
    SetComputeThreads(threads);
  }
}

TEST(Matmul, ALargeMatrixTimesAColumn) {
  std::mt19937 random(2);
  for (const bool tb : {false, true}) {
    const Sizes s{709, 1, 129, false, tb};
    const std::vector<float> a = testing::NormalNumbers(s.m * s.k, 0, random),
                             b = testing::NormalNumbers(s.k * s.n, 0, random);
    const std::vector<float> y = Multiply(s, "rows", a, b);
    EXPECT_LE(Error(s, a, b, y), 1e-7) << tb;
    EXPECT_EQ(Multiply(s, "", a, b), y) << tb;
  }
}

// One product a sum: all of f32's bits count, up to the rounding of six terms.
TEST(Matmul, SingleProductsKeepTheirBits) {
  const Sizes s{192, 192, 64, false, false};
  std::mt19937 random(2);
  std::vector<float> a(s.m * s.k), b(s.k * s.n);
  for (int64_t i = 0; i < s.m; ++i) a[i * s.k + i % s.k] = testing::NormalNumbers(1, 0, random)[0];
  b = testing::NormalNumbers(s.k * s.n, 0, random);
  const std::vector<float> y = Multiply(s, "", a, b);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      const double want = static_cast<double>(a[i * s.k + i % s.k]) * static_cast<double>(b[i % s.k * s.n + j]);
      EXPECT_LE(std::fabs(static_cast<double>(y[i * s.n + j]) - want), std::ldexp(std::fabs(want), -23)) << want;
    }
  }
}

// Of tiles, which oneDNN's products need not do: its threads may share a sum.
TEST(Matmul, BitsOfTilesDoNotDependOnThreads) {
  if (!absl::StrContains(InstructionSets(), "amx")) GTEST_SKIP() << "no tiles here";
  std::mt19937 random(3);
  const Sizes s{170, 224, 150, true, false};
  const std::vector<float> a = testing::NormalNumbers(s.m * s.k, 9, random),
                           b = testing::NormalNumbers(s.k * s.n, 9, random);
  const int before = ComputeThreads();
  SetComputeThreads(1);
  const std::vector<float> one = Multiply(s, "bf16x3", a, b);
  SetComputeThreads(3);
  const std::vector<float> three = Multiply(s, "bf16x3", a, b);
  SetComputeThreads(before);
  EXPECT_EQ(one, three);
}

// Products with so many rows that each of three threads takes its own of them, which are not whole blocks.
TEST(Matmul, ThreadsTakeRows) {
  std::mt19937 random(5);
  const int before = ComputeThreads();
  SetComputeThreads(3);
  for (const Sizes& s : {Sizes{389, 40, 70, false, false}, Sizes{1000, 33, 64, false, true},
                         Sizes{40, 70, 389, true, false}, Sizes{96, 128, 1000, true, false}}) {
    SCOPED_TRACE(s.m);
    const std::vector<float> a = testing::NormalNumbers(s.m * s.k, 0, random),
                             b = testing::NormalNumbers(s.k * s.n, 0, random);
    EXPECT_LE(Error(s, a, b, Multiply(s, "onednn", a, b)), 3e-8);
    const std::vector<BF16> p(a.begin(), a.end()), q(b.begin(), b.end());
    const std::vector<BF16> y = Multiply(s, "onednn", p, q);
    // Of numbers rounded once; rounding their parts too gives 3.6e-3.
    EXPECT_LE(Error(s, p, q, y) * std::sqrt(s.k), 2.9e-3);
  }
  SetComputeThreads(before);
}

// Infinities and NaN are where f32 has them, and numbers that bf16 does not reach are numbers.
TEST(Matmul, NumbersThatAreNotFinite) {
  const Sizes s{192, 192, 64, false, false};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float odd : {kInfinity, -kInfinity, std::numeric_limits<float>::max()}) {
    for (const bool left : {true, false}) {
      std::vector<float> a(s.m * s.k, 0.25f), b(s.k * s.n, 0.5f);
      (left ? a : b)[5] = odd;
      const std::vector<float> y = Multiply(s, "", a, b);
      EXPECT_EQ(y[left ? 9 : 5], odd * (left ? 0.5f : 0.25f)) << odd << " " << left;
      EXPECT_EQ(y[9 * s.n + 9], 64 * 0.125f);
    }
  }
  std::vector<float> a(s.m * s.k, 0.25f), b(s.k * s.n, 0.5f);
  a[0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = Multiply(s, "", a, b);
  EXPECT_TRUE(std::isnan(y[7]));
  EXPECT_EQ(y[s.n], 64 * 0.125f);
}

}  // namespace
}  // namespace mslua
