// Real cuDNN makes plans for an H200 and an A100 that are not here: convolutions and attention of networks, each with
// an engine that is repeatable, in float32 without tensor cores. It needs cuDNN, but no device: cuDNN is told a
// device's properties (devices/*.json), and plans_driver.cc takes the place of the driver. Skipped where cuDNN is not
// on the machine.
//
// By default some of the networks' layers, for one device; all_cudnn_plans_test has all of them (a minute).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/cudnn_attention.h"
#include "core/device/cudnn_convolution.h"

namespace mslua {
namespace {

#ifdef ALL_PLANS
constexpr bool kAll = true;
#else
constexpr bool kAll = false;
#endif

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Layer {
  const char* network;
  int64_t batch, in, size, out, kernel, stride, before, after;
};

// The layers of a ResNet of images of 224 x 224. `same`: padded as pad_mode "same" does, else by half a kernel.
std::vector<Layer> ResNet(const char* name, const std::vector<int>& depths, bool bottleneck, bool same) {
  std::vector<Layer> layers;
  const auto add = [&](int64_t in, int64_t size, int64_t out, int64_t kernel, int64_t stride) {
    const int64_t whole = std::max<int64_t>((size + stride - 1) / stride * stride - stride + kernel - size, 0);
    layers.push_back({name, 256, in, size, out, kernel, stride, same ? whole / 2 : kernel / 2,
                      same ? whole - whole / 2 : kernel / 2});
  };
  add(3, 224, 64, 7, 2);
  int64_t size = 56, channels = 64;
  for (size_t stage = 0; stage < depths.size(); ++stage) {
    const int64_t planes = int64_t{64} << stage, out = bottleneck ? 4 * planes : planes;
    for (int block = 0; block < depths[stage]; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      if (bottleneck) {
        add(channels, size, planes, 1, 1);
        add(planes, size, planes, 3, stride);
        add(planes, size / stride, out, 1, 1);
      } else {
        add(channels, size, planes, 3, stride);
        add(planes, size / stride, planes, 3, 1);
      }
      if (stride > 1 || channels != out) add(channels, size, out, 1, stride);
      size /= stride;
      channels = out;
    }
  }
  return layers;
}

std::vector<Layer> Layers() {
  std::vector<Layer> layers = {{"LeNet", 32, 1, 32, 6, 5, 1, 0, 0}, {"LeNet", 32, 6, 14, 16, 5, 1, 0, 0}};
  const auto append = [&](const std::vector<Layer>& more) { layers.insert(layers.end(), more.begin(), more.end()); };
  append(ResNet("ResNet-18", {2, 2, 2, 2}, false, false));
  append(ResNet("ResNet-50", {3, 4, 6, 3}, true, false));
  append(ResNet("ResNet-50 same", {3, 4, 6, 3}, true, true));
  return layers;
}

class CudnnPlans : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto library = cuda::OpenCudnn();
    const char* const required = std::getenv("MSLUA_REQUIRE_CUDA");
    if (!library.ok() && required != nullptr && std::string(required) == "1") FAIL() << library.status();
    if (!library.ok()) GTEST_SKIP() << "skipped: " << library.status().message();
    // Its soname is libcuda.so.1: the loader gives this one to a library that asks for it from now on.
    static void* const driver = dlopen("tests/emulated_device/libcuda_of_plans.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(driver, nullptr) << dlerror();
    std::ifstream file(absl::StrCat("tests/emulated_device/devices/", GetParam(), ".json"));
    const std::string properties(std::istreambuf_iterator<char>(file), {});
    auto target = CudnnTarget::Described(properties);
    if (absl::IsUnimplemented(target.status()))
      GTEST_SKIP() << "skipped: " << (*library)->path << " is older than 9.8, which knows no properties of a device";
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = std::make_unique<CudnnTarget>(*std::move(target));
    std::printf("%s, cuDNN %s\n%-62s %-50s %12s %8s\n", GetParam(),
                cuda::CudnnVersionText((*library)->call.cudnnGetVersion()).c_str(), "", "", "workspace", "made in");
  }
  // One line of the table, and whether the plan is one that mslua may use.
  void Expect(const std::string& name, const StatusOr<std::unique_ptr<CudnnPlan>>& plan, double seconds, bool exact) {
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status();
    std::printf("%-62s %-50s %9.2f MB %6.0f ms\n", name.c_str(), (*plan)->choice().c_str(),
                static_cast<double>((*plan)->workspace_bytes()) / 1e6, 1e3 * seconds);
    for (const int note : (*plan)->notes()) {
      EXPECT_NE(note, cuda::kDnnNondeterministic) << name;
      if (exact) {
        EXPECT_NE(note, cuda::kDnnTensorCore) << name;
        EXPECT_NE(note, cuda::kDnnDownConvert) << name;
      }
    }
    with_knobs_ += absl::StrContains((*plan)->choice(), ", ") ? 1 : 0;
    ++plans_;
  }

  std::unique_ptr<CudnnTarget> target_;
  int plans_ = 0, with_knobs_ = 0;
};

TEST_P(CudnnPlans, Convolutions) {
  constexpr const char* kKinds[] = {"forward", "gradient of x", "gradient of w"};
  std::set<std::string> seen;
  int on_tensor_cores = 0;
  for (const Layer& l : Layers()) {
    if (!kAll && std::string(l.network) == "ResNet-18") continue;
    ConvolutionShape shape;
    const int64_t y = (l.size + l.before + l.after - l.kernel) / l.stride + 1;
    shape.x = {l.batch, l.in, l.size, l.size};
    shape.w = {l.out, l.in, l.kernel, l.kernel};
    shape.y = {l.batch, l.out, y, y};
    shape.stride = {l.stride, l.stride};
    shape.before = {l.before, l.before};
    shape.after = {l.after, l.after};
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (int kind = 0; kind < 3; ++kind) {
        // No training asks for it, and with unequal padding cuDNN 9.19 has none in float32.
        if (l.in == 3 && l.before != l.after && kind == 1) continue;
        shape.type = type;
        shape.kind = static_cast<ConvolutionKind>(kind);
        const std::string name = absl::StrCat(l.network, " ", l.in, "x", l.size, " to ", l.out, " ", l.kernel, "x",
                                              l.kernel, "/", l.stride, " ", Name(type), " ", kKinds[kind]);
        if (!seen.insert(name).second) continue;
        const double begin = Seconds();
        const auto plan = PlanConvolution(*target_, shape);
        Expect(name, plan, Seconds() - begin, type == DType::kF32);
        if (type != DType::kF32) continue;
        shape.tf32 = true;
        const auto rounded = PlanConvolution(*target_, shape);
        shape.tf32 = false;
        Expect(absl::StrCat(name, ", TF32"), rounded, 0, false);
        if (!rounded.ok()) continue;
        const std::vector<int>& notes = (*rounded)->notes();
        on_tensor_cores += std::count(notes.begin(), notes.end(), cuda::kDnnTensorCore) > 0 ? 1 : 0;
        EXPECT_EQ(std::count(notes.begin(), notes.end(), cuda::kDnnDownConvert), 0) << name;
        if (!plan.ok()) continue;
        // A choice is made again, but for one that is too rough.
        const auto again = PlanConvolution(*target_, shape, (*plan)->choice());
        const auto refused = PlanConvolution(*target_, shape, (*rounded)->choice());
        ASSERT_TRUE(again.ok() && refused.ok()) << name;
        EXPECT_EQ((*again)->choice(), (*plan)->choice()) << name;
        EXPECT_EQ((*refused)->choice(), (*plan)->choice()) << name;
      }
    }
  }
  std::printf("%d convolutions; of float32, %d on tensor cores where TF32 is allowed\n", plans_, on_tensor_cores);
  EXPECT_GT(on_tensor_cores, 20);
  EXPECT_GT(with_knobs_, 20);
}

TEST_P(CudnnPlans, Attention) {
  struct Network {
    const char* name;
    int64_t batch, heads, t, d;
  };
  for (const Network& n : {Network{"char_gpt", 12, 4, 64, 32}, Network{"GPT-2", 16, 12, 1024, 64}}) {
    for (const DType type : {DType::kBF16, DType::kF16}) {
      if (!kAll && type == DType::kF16) continue;
      AttentionShape shape;
      shape.type = type;
      shape.batch = n.batch;
      shape.heads = n.heads;
      shape.t = shape.s = n.t;
      shape.d = shape.e = n.d;
      shape.causal = true;
      shape.scale = 1 / std::sqrt(static_cast<double>(n.d));
      const int64_t width = n.heads * n.d;
      shape.q = shape.k = shape.v = {n.t * 3 * width, n.d, 3 * width};
      shape.y = {n.t * width, n.d, width};
      for (const bool grad : {false, true}) {
        const double begin = Seconds();
        const auto plan = grad ? PlanAttentionGrad(*target_, shape) : PlanAttention(*target_, shape);
        Expect(absl::StrCat(n.name, " attention ", n.batch, " x ", n.heads, " x ", n.t, " x ", n.d, " ", Name(type),
                            grad ? " gradient" : " forward"),
               plan, Seconds() - begin, false);
        // The form that adds in a fixed order keeps the scores.
        if (grad && plan.ok()) {
          EXPECT_GE((*plan)->workspace_bytes(), 2 * n.batch * n.heads * n.t * n.t) << n.name;
        }
      }
    }
  }
  std::printf("%d plans of attention\n", plans_);
}

// Sizes of the operators' samples: a plan, or a refusal, which leaves the call to text, and no error.
TEST_P(CudnnPlans, OddSizesArePlannedOrRefused) {
  struct Case {
    std::array<int64_t, 4> x, w;
    std::array<int64_t, 2> stride, dilation, before, after;
  };
  int refused = 0;
  for (const Case& c : {Case{{2, 3, 7, 6}, {5, 3, 3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
                        Case{{2, 6, 9, 8}, {4, 3, 3, 2}, {2, 1}, {2, 3}, {2, 0}, {1, 1}},
                        Case{{2, 3, 8, 7}, {4, 3, 3, 3}, {2, 2}, {1, 1}, {0, 1}, {1, 1}},
                        Case{{2, 18, 5, 5}, {20, 18, 1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
                        Case{{1, 4, 9, 7}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {2, 0}, {1, 1}}}) {
    for (int k = 0; k < 18; ++k) {
      ConvolutionShape shape;
      shape.type = std::array<DType, 3>{DType::kF32, DType::kBF16, DType::kF16}[static_cast<size_t>(k / 6)];
      shape.kind = static_cast<ConvolutionKind>(k % 3);
      if (!kAll && shape.type == DType::kF16) continue;
      shape.channels_last = k / 3 % 2 == 0;
      shape.x = c.x;
      shape.w = c.w;
      shape.stride = c.stride;
      shape.dilation = c.dilation;
      shape.before = c.before;
      shape.after = c.after;
      shape.y = {c.x[0], c.w[0], 0, 0};
      for (size_t d = 0; d < 2; ++d) {
        shape.y[d + 2] =
            (c.x[d + 2] + c.before[d] + c.after[d] - (c.w[d + 2] - 1) * c.dilation[d] - 1) / c.stride[d] + 1;
      }
      const auto plan = PlanConvolution(*target_, shape);
      EXPECT_TRUE(plan.ok() || absl::IsUnimplemented(plan.status())) << plan.status();
      refused += plan.ok() ? 0 : 1;
    }
  }
  EXPECT_EQ(refused, 0);
  for (const int64_t d : {8, 9, 16}) {
    AttentionShape shape;
    shape.batch = 2;
    shape.heads = 3;
    shape.t = 9;
    shape.s = 11;
    shape.d = d;
    shape.e = 16;
    shape.q = {27 * d, 9 * d, d};
    shape.k = {33 * d, 11 * d, d};
    shape.v = {528, 176, 16};
    shape.y = {432, 144, 16};
    const auto plan = PlanAttention(*target_, shape);
    EXPECT_TRUE(plan.ok() || absl::IsUnimplemented(plan.status())) << plan.status();
    EXPECT_EQ(plan.ok(), d % 8 == 0) << d;
  }
}

#ifdef ALL_PLANS
INSTANTIATE_TEST_SUITE_P(Devices, CudnnPlans, ::testing::Values("h200", "a100"),
                         [](const auto& info) { return std::string(info.param); });
#else
INSTANTIATE_TEST_SUITE_P(Devices, CudnnPlans, ::testing::Values("h200"),
                         [](const auto& info) { return std::string(info.param); });
#endif

}  // namespace
}  // namespace mslua
