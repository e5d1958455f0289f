// Which kernels are taken: never one of the table, never one that fails its check or crashes in it.
#include "core/kernels/select/bilinear_guard.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/kernels/select/bilinear_check.h"
#include "core/kernels/select/kernel_verdicts.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

// How many of the processes that check crash, by the file's size: each that starts adds a byte.
constexpr char kCrashes[] = "BILINEAR_GUARD_TEST_CRASHES", kStarts[] = "BILINEAR_GUARD_TEST_STARTS";

constexpr Way kWays[] = {Way::kOneDnn, Way::kOneDnnF32};

Bilinear Product(int64_t batch, int64_t m, int64_t k, int64_t n, bool transpose_a = false, bool transpose_b = false) {
  return Bilinear::Of(MatrixProduct{batch, m, n, k, transpose_a, transpose_b}, DType::kBF16, DType::kBF16);
}

struct Sizes {
  int64_t n, in, out, group, h, w;
  std::array<int64_t, 2> kernel, stride, dilation, before, after;
};

Bilinear ConvolutionOfSizes(BilinearOp op, const Sizes& s, bool channels_last) {
  Convolution c;
  c.group = s.group;
  c.window = {s.kernel, s.stride, s.dilation, s.before, s.after};
  c.x = {s.n, s.in, s.h, s.w, channels_last};
  const auto size = OutputSize(c.window, s.h, s.w);
  c.y = {s.n, s.out, size[0], size[1], channels_last};
  return Bilinear::Of(op, c, DType::kBF16);
}

struct Example {
  const char* row;
  Bilinear bilinear;
};

std::vector<Example> KnownBadExamples() {
  const char *const product = "product with k = 63",
                    *const padding = "gradient of weights with places that meet padding alone",
                    *const dilated = "gradient of weights of a dilated window",
                    *const results = "convolution in groups with results of padding alone";
  std::vector<Example> all = {
      {product, Product(1, 33, 63, 48)},
      {product, Product(1, 129, 63, 511)},
      {product, Product(5, 129, 63, 24)},
      {product, Product(1, 49, 63, 47, true)},
      {product, Product(3, 257, 63, 17, true, true)},
  };
  for (const bool last : {false, true}) {
    for (const Sizes& s : {Sizes{1, 8, 8, 2, 13, 1, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
                           Sizes{2, 8, 8, 2, 2, 2, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                           Sizes{7, 48, 129, 1, 34, 1, {2, 2}, {4, 4}, {1, 1}, {0, 0}, {0, 1}},
                           Sizes{2, 16, 32, 2, 1, 64, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}}})
      all.push_back({padding, ConvolutionOfSizes(BilinearOp::kGradWeight, s, last)});
    for (const Sizes& s : {Sizes{2, 34, 34, 34, 13, 28, {3, 3}, {1, 1}, {2, 1}, {2, 2}, {2, 2}},
                           Sizes{2, 34, 34, 34, 13, 28, {5, 2}, {1, 1}, {2, 2}, {4, 2}, {1, 1}},
                           Sizes{18, 35, 32, 1, 26, 9, {3, 3}, {1, 1}, {4, 3}, {0, 0}, {0, 0}}})
      all.push_back({dilated, ConvolutionOfSizes(BilinearOp::kGradWeight, s, last)});
    for (const Sizes& s : {Sizes{1, 51, 24, 3, 8, 28, {1, 2}, {2, 1}, {1, 1}, {0, 0}, {1, 0}},
                           Sizes{3, 51, 21, 3, 13, 8, {3, 1}, {2, 2}, {1, 1}, {1, 1}, {3, 1}},
                           Sizes{1, 68, 12, 4, 4, 13, {3, 1}, {2, 2}, {1, 1}, {2, 1}, {3, 0}}})
      all.push_back({results, ConvolutionOfSizes(BilinearOp::kConvolution, s, last)});
  }
  return all;
}

TEST(OneDnnWays, ProcessorsWithoutInstructionsForBF16UseF32) {
  const bool instructions = __builtin_cpu_supports("avx512bf16") && getenv("ONEDNN_MAX_CPU_ISA") == nullptr;
  EXPECT_EQ(OneDnnWays(DType::kBF16)[0], instructions ? Way::kOneDnn : Way::kOneDnnF32);
  EXPECT_EQ(OneDnnWays(DType::kF32)[0], Way::kOneDnn);
}

TEST(BilinearGuard, KnownBadSizesAreInTheTable) {
  for (const Example& e : KnownBadExamples()) {
    const KnownBad* const row = FindKnownBad(e.bilinear, Way::kOneDnn);
    ASSERT_NE(row, nullptr) << ToString(e.bilinear);
    EXPECT_STREQ(row->name, e.row) << ToString(e.bilinear);
    EXPECT_EQ(FindKnownBad(e.bilinear, Way::kOneDnnF32), nullptr);
  }
}

TEST(BilinearGuard, EveryRowHasAnExampleAndACause) {
  for (const KnownBad& row : KnownBadSizes()) {
    const auto examples = KnownBadExamples();
    EXPECT_TRUE(std::any_of(examples.begin(), examples.end(), [&](const Example& e) {
      return absl::string_view(e.row) == row.name;
    })) << row.name;
    EXPECT_GT(std::strlen(row.cause), 0) << row.name;
  }
}

TEST(BilinearGuard, GoodSizesAreNotInTheTable) {
  for (const Bilinear& b :
       {Product(1, 33, 62, 48), Product(1, 33, 64, 48), Product(1, 33, 127, 48), Product(1, 63, 64, 63),
        ConvolutionOfSizes(BilinearOp::kGradWeight, {2, 64, 64, 1, 56, 56, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                           true),
        ConvolutionOfSizes(BilinearOp::kGradWeight, {2, 3, 64, 1, 224, 224, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
                           true),
        ConvolutionOfSizes(BilinearOp::kGradWeight, {2, 64, 64, 1, 2, 2, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                           true)})
    EXPECT_EQ(FindKnownBad(b, Way::kOneDnn), nullptr) << ToString(b);
}

// The kernels that are taken for sizes of the table compute them.
TEST(BilinearGuard, KnownBadSizesAreComputedRight) {
  const int before = ComputeThreads();
  for (const int threads : {1, 2}) {
    SetComputeThreads(threads);
    for (const Example& e : KnownBadExamples()) {
      const auto kernel = MakeGuarded(e.bilinear, kWays);
      ASSERT_EQ(kernel.status(), absl::OkStatus());
      EXPECT_EQ(CheckKernel(e.bilinear, **kernel), Verdict::kRight) << ToString(e.bilinear) << " threads " << threads;
    }
  }
  SetComputeThreads(before);
}

// oneDNN 2.6.3 overwrote memory here, in f32 too.
TEST(BilinearGuard, StridedWindowsOfOnePixelOverFewChannelsAreComputedRight) {
  for (const std::array<int64_t, 2> stride : {std::array<int64_t, 2>{2, 1}, {1, 2}, {2, 2}, {3, 3}}) {
    for (const int64_t in : {1, 3, 4, 7, 8, 9, 12, 15, 16, 17}) {
      for (const int64_t side : {5, 24, 45}) {
        const Sizes sizes = {3, in, 8, 1, side * stride[0], side * stride[1], {1, 1}, stride, {1, 1}, {0, 0}, {0, 0}};
        for (const BilinearOp op : {BilinearOp::kConvolution, BilinearOp::kGradInput, BilinearOp::kGradWeight}) {
          const Bilinear bf16 = ConvolutionOfSizes(op, sizes, true);
          const Bilinear f32 = Bilinear::Of(op, bf16.convolution, DType::kF32);
          for (const auto& [b, way] : {std::pair(bf16, Way::kOneDnnF32), std::pair(f32, Way::kOneDnn)}) {
            const auto kernel = MakeUnguarded(b, way);
            ASSERT_EQ(kernel.status(), absl::OkStatus());
            EXPECT_EQ(CheckKernel(b, **kernel), Verdict::kRight) << ToString(b);
          }
        }
      }
    }
  }
}

int64_t SizeOfFile(const std::string& name) {
  struct stat info;
  return stat(name.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
}

// Of the processes started from now on the first `crashes` crash. The name of a file with a byte for each.
std::string CrashNext(int crashes) {
  EndCheckProcess();
  const std::string starts = absl::StrCat(getenv("TEST_TMPDIR"), "/starts_", crashes);
  setenv(kStarts, starts.c_str(), 1);
  setenv(kCrashes, std::to_string(crashes).c_str(), 1);
  return starts;
}

TEST(BilinearGuard, KernelsAreCheckedInAnotherProcess) {
  const std::string starts = CrashNext(0);
  const Bilinear b = Product(1, 40, 41, 42);
  const auto kernel = MakeGuarded(b, kWays);
  ASSERT_EQ(kernel.status(), absl::OkStatus());
  EXPECT_EQ(SizeOfFile(starts), 1);
  // Once for each size.
  EXPECT_EQ(MakeGuarded(b, kWays).status(), absl::OkStatus());
  EXPECT_EQ(CheckKernel(b, **kernel), Verdict::kRight);
  std::ifstream file(absl::StrCat(getenv("XDG_CACHE_HOME"), "/mslua/kernel_verdicts"));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(absl::StrContains(text.str(), ToString(b))) << text.str();
}

TEST(BilinearGuard, AKernelThatCrashesIsNotTaken) {
  const std::string starts = CrashNext(1);
  const Bilinear b = Product(1, 50, 51, 52);
  const auto kernel = MakeGuarded(b, kWays);
  ASSERT_EQ(kernel.status(), absl::OkStatus());
  EXPECT_EQ(SizeOfFile(starts), 2);
  EXPECT_EQ(CheckKernel(b, **kernel), Verdict::kRight);
}

TEST(BilinearGuard, NoKernelIsAnErrorThatSaysHowToFixIt) {
  CrashNext(2);
  const auto kernel = MakeGuarded(Product(1, 60, 61, 62), kWays);
  ASSERT_FALSE(kernel.ok());
  EXPECT_TRUE(absl::StrContains(kernel.status().message(), "matmul bf16 batch 1 m 60 n 62 k 61")) << kernel.status();
  EXPECT_TRUE(absl::StrContains(kernel.status().message(), "fix: ")) << kernel.status();
}

TEST(KernelVerdicts, LinesAreReadAsWritten) {
  for (const bool passes : {true, false}) {
    std::string line = VerdictLine("v1 2.6.3:", "onednn threads 2 matmul", passes);
    ASSERT_EQ(line.back(), '\n');
    line.pop_back();
    absl::string_view key;
    bool read = !passes;
    ASSERT_TRUE(ParseVerdictLine(line, "v1 2.6.3:", &key, &read));
    EXPECT_EQ(key, "onednn threads 2 matmul");
    EXPECT_EQ(read, passes);
    EXPECT_FALSE(ParseVerdictLine(line, "v2 2.6.3:", &key, &read));
  }
}

// A damaged line gives no verdict, or that of another kernel; never another verdict of the same.
TEST(KernelVerdicts, DamagedLinesGiveNoOtherVerdict) {
  std::mt19937 random(1);
  const std::string line = VerdictLine("v1 2.6.3:", "onednn threads 2 matmul bf16 m 33", false);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = line.substr(0, line.size() - 1);
    for (int64_t n = 1 + random() % 3; n > 0 && !damaged.empty(); --n) {
      const size_t at = random() % damaged.size();
      if (random() % 3 == 0)
        damaged.resize(at);
      else
        damaged[at] = static_cast<char>(random());
    }
    absl::string_view key;
    bool passes = false;
    const bool same =
        ParseVerdictLine(damaged, "v1 2.6.3:", &key, &passes) && key == "onednn threads 2 matmul bf16 m 33";
    EXPECT_FALSE(same && passes);
  }
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == mslua::kCheckKernelsArgument && getenv(mslua::kStarts) != nullptr) {
    std::ofstream(getenv(mslua::kStarts), std::ios::app) << '.';
    if (mslua::SizeOfFile(getenv(mslua::kStarts)) <= atoi(getenv(mslua::kCrashes))) raise(SIGILL);
  }
  if (getenv("TEST_TMPDIR") != nullptr) setenv("XDG_CACHE_HOME", getenv("TEST_TMPDIR"), 1);
  mslua::OfferKernelChecks(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
