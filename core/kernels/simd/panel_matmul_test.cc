#include "core/kernels/simd/panel_matmul.h"

#include <cmath>
#include <random>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/kernels/simd/panel_kernel.h"
#include "core/ops/testing/instruction_sets.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

template <class T>
std::vector<T> Random(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-1, 1);
  std::vector<T> x(static_cast<size_t>(n));
  for (T& v : x) v = static_cast<T>(draw(random));
  return x;
}

template <class T>
struct Operands {
  MatrixProduct p;
  std::vector<T> a = Random<T>(p.batch * p.m * p.k, 1), b = Random<T>(p.batch * p.k * p.n, 2);

  double Element(int64_t batch, int64_t i, int64_t j) const {
    const T* left = a.data() + batch * p.m * p.k;
    const T* right = b.data() + batch * p.k * p.n;
    double sum = 0;
    for (int64_t l = 0; l < p.k; ++l) {
      sum += static_cast<double>(p.transpose_a ? left[l * p.m + i] : left[i * p.k + l]) *
             static_cast<double>(p.transpose_b ? right[j * p.k + l] : right[l * p.n + j]);
    }
    return sum;
  }

  // By the kernel for so many threads. Numbers that are not finite show what was not written, or read before.
  template <class Result>
  std::vector<Result> Multiply(int threads) const {
    const int before = ComputeThreads();
    SetComputeThreads(threads);
    const auto kernel = MakePanelKernel(p, DTypeOf<T>::value, DTypeOf<Result>::value);
    std::vector<Result> y(static_cast<size_t>(p.batch * p.m * p.n), static_cast<Result>(NAN));
    std::vector<float> scratch(static_cast<size_t>(kernel->scratch_bytes()) / sizeof(float) + 16, NAN);
    float* aligned = scratch.data();
    while (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) ++aligned;
    const void* const inputs[] = {a.data(), b.data()};
    void* const outputs[] = {y.data()};
    EXPECT_TRUE(kernel->Run({inputs, outputs, aligned}).ok());
    SetComputeThreads(before);
    return y;
  }
};

template <class T, class Result>
void ExpectRight(const MatrixProduct& p) {
  SCOPED_TRACE(ToString(Bilinear::Of(p, DTypeOf<T>::value, DTypeOf<Result>::value)));
  const Operands<T> o{p};
  const std::vector<Result> y = o.template Multiply<Result>(1);
  const double rounding = sizeof(Result) == 2 ? 0x1p-8 : 0, of_sum = sizeof(Result) == 8 ? 1e-15 : 1e-6;
  for (int64_t at = 0; at < p.batch * p.m * p.n; ++at) {
    const double want = o.Element(at / (p.m * p.n), at / p.n % p.m, at % p.n);
    ASSERT_NEAR(static_cast<double>(y[static_cast<size_t>(at)]), want,
                of_sum * static_cast<double>(p.k) + rounding * std::fabs(want))
        << "element " << at;
  }
}

// Sizes around those of tiles, panels and blocks.
template <class T, class Result>
void ExpectRightSizes() {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const int64_t m : {1, 5, 6, 7, 97}) {
        for (const int64_t n : {1, 15, 16, 17, 33}) ExpectRight<T, Result>({1, m, n, 3 + m, ta, tb});
      }
      ExpectRight<T, Result>({1, 13, 40, 257, ta, tb});
      ExpectRight<T, Result>({1, 200, 31, 512, ta, tb});
      ExpectRight<T, Result>({1, 7, 1030, 5, ta, tb});
      ExpectRight<T, Result>({3, 10, 20, 30, ta, tb});
    }
  }
}

TEST(PanelMatmul, MultipliesOnEveryInstructionSet) {
  testing::OnEveryInstructionSet([] {
    ExpectRightSizes<float, float>();
    ExpectRightSizes<double, double>();
    ExpectRightSizes<BF16, BF16>();
    ExpectRightSizes<BF16, float>();
  });
}

template <class T>
void ExpectSameBits() {
  for (const MatrixProduct& p :
       {MatrixProduct{1, 300, 130, 300, false, true}, MatrixProduct{1, 100, 700, 280, true, false},
        MatrixProduct{5, 120, 110, 64, false, false}, MatrixProduct{2, 250, 300, 90, true, true}}) {
    const Operands<T> o{p};
    const std::vector<T> y = o.template Multiply<T>(1);
    for (const int threads : {2, 3, 8}) EXPECT_EQ(o.template Multiply<T>(threads), y) << threads;
  }
}

TEST(PanelMatmul, BitsDoNotDependOnThreads) {
  ExpectSameBits<float>();
  ExpectSameBits<double>();
  ExpectSameBits<BF16>();
}

}  // namespace
}  // namespace mslua
