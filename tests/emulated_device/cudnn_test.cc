// Convolutions and attention by cuDNN's functions are those of the reference; engines that mslua must not take are not
// taken; each of the functions failing is an error that names it; planted mistakes are found.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/cudnn_convolution.h"
#include "core/device/device.h"
#include "core/op/registry.h"
#include "tests/emulated_device/library_calls.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

using testing::Call;
using testing::Memory;
using Ints = std::vector<int64_t>;

#define NAME_OF(name, parameters) #name,
constexpr const char* kFunctions[] = {MSLUA_CUDNN(NAME_OF)};
#undef NAME_OF

class CudnnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(testing::UseEmulatedDevice().ok());
    auto device = Device::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *device;
    auto stream = device_->MakeStream();
    ASSERT_TRUE(stream.ok());
    stream_ = *std::move(stream);
    if (testing::OnRealDevice()) {
      const Status library = cuda::OpenCudnn().status();
      if (!library.ok()) GTEST_SKIP() << "skipped: " << library.message();
      return;
    }
    auto emulation = testing::FindEmulation();
    ASSERT_TRUE(emulation.ok()) << emulation.status();
    emulation_ = *emulation;
  }

  void TearDown() override {
    if (calls_ > 0) std::printf("%d calls by cuDNN\n", calls_);
  }

  static Call MakeCall(const char* op, const std::vector<TensorType>& types, const Attrs& attrs) {
    auto call = testing::MakeCall(*Operators().Find(op), types, attrs);
    EXPECT_TRUE(call.ok()) << op << ": " << call.status();
    return call.ok() ? *std::move(call) : Call();
  }
  static StatusOr<LibraryProgram> Find(const Call& call) {
    return FindLibraryKernel(call.op->name, {call.attrs, call.inputs, call.outputs}, {});
  }
  // By cuDNN, and as near to the reference in float64 as the types allow.
  void ExpectTruth(const Call& call) {
    Sample sample;
    sample.low = 0.2;
    const std::vector<Memory> inputs = testing::MakeInputs(call, sample);
    const auto program = Find(call);
    ASSERT_TRUE(program.ok()) << call.op->name << ": " << program.status();
    ASSERT_NE(program->kernel, nullptr) << call.op->name << " " << ToString(call.inputs[0]);
    EXPECT_STREQ(program->kernel->name(), "cudnn");
    const auto got = testing::RunLibraryProgram(device_, stream_, call, inputs, *program);
    ASSERT_TRUE(got.ok()) << call.op->name << ": " << got.status();
    const auto truth = testing::Truth(call, inputs);
    ASSERT_TRUE(truth.ok()) << truth.status();
    const Status near = testing::ExpectTruth(*got, *truth);
    EXPECT_TRUE(near.ok()) << call.op->name << " " << ToString(call.inputs[0]) << ": " << near;
    ++calls_;
  }

  // Makes each of cuDNN's functions fail at each of its calls while `call` is prepared and run.
  int FailEverywhere(const Call& call) {
    const std::vector<Memory> inputs = testing::MakeInputs(call, {});
    const auto run = [&]() -> Status {
      ASSIGN_OR_RETURN(const LibraryProgram program, Find(call));
      if (program.kernel == nullptr) return absl::NotFoundError("no kernel");
      return testing::RunLibraryProgram(device_, stream_, call, inputs, program).status();
    };
    int pairs = 0;
    for (const char* name : kFunctions) {
      for (int number = 1;; ++number) {
        const int before = emulation_.held();
        emulation_.fail(name, number);
        const Status status = run();
        const bool failed = emulation_.failed();
        emulation_.fail("", 0);
        if (!failed) break;
        ++pairs;
        if (std::string(name) == "cudnnBackendDestroyDescriptor") continue;  // nobody is told
        EXPECT_TRUE(absl::StrContains(status.message(), name)) << name << ", call " << number << ": " << status;
        EXPECT_EQ(emulation_.held(), before) << name << ", call " << number;
      }
    }
    return pairs;
  }

  Device* device_ = nullptr;
  DeviceStream stream_;
  testing::Emulation emulation_ = {};
  int calls_ = 0;
};

struct Case {
  Shape x, w;
  Attrs attrs;
};
// Images of channels first; the cases are run in both formats.
std::vector<Case> Cases() {
  return {{{2, 3, 7, 6}, {5, 3, 3, 3}, {}},
          {{2, 8, 9, 8}, {4, 4, 3, 2}, {{"stride", Ints{2, 1}}, {"group", int64_t{2}}, {"dilation", Ints{2}}}},
          {{2, 8, 8, 6}, {4, 8, 3, 3}, {{"stride", Ints{2}}, {"pad_mode", "same"}}},
          {{1, 4, 9, 7}, {4, 1, 3, 3}, {{"pad_mode", "pad"}, {"padding", Ints{2, 1, 0, 1}}, {"group", int64_t{4}}}},
          {{3, 18, 5, 5}, {20, 18, 1, 1}, {}}};
}

Shape Last(const Shape& s) { return {s[0], s[2], s[3], s[1]}; }

TEST_F(CudnnTest, FailureToStartIsAnError) {
  if (testing::OnRealDevice()) GTEST_SKIP() << "of the emulation";
  const Call call = MakeCall("conv2d", {{DType::kF32, {1, 1, 3, 3}}, {DType::kF32, {1, 1, 3, 3}}}, {});
  emulation_.fail("cudnnCreate", 1);
  const auto program = Find(call);
  emulation_.fail("", 0);
  EXPECT_TRUE(absl::StrContains(program.status().message(), "device: cudnnCreate: ")) << program.status();
  EXPECT_TRUE(Find(call).ok());
}

TEST_F(CudnnTest, ConvolutionsAreThoseOfTheReference) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const Case& c : Cases()) {
      for (const bool last : {true, false}) {
        Attrs attrs = c.attrs;
        if (last) attrs.Set("data_format", "NHWC");
        const Call forward = MakeCall("conv2d", {{type, last ? Last(c.x) : c.x}, {type, c.w}}, attrs);
        ExpectTruth(forward);
        const TensorType &x = forward.inputs[0], &y = forward.outputs[0];
        Attrs input = attrs, weight = attrs;
        input.Set("input_size", Ints{c.x[2], c.x[3]});
        weight.Set("kernel_size", Ints{c.w[2], c.w[3]});
        ExpectTruth(MakeCall("conv2d_grad_input", {y, {type, c.w}}, input));
        ExpectTruth(MakeCall("conv2d_grad_weight", {x, y}, weight));
      }
    }
  }
  EXPECT_EQ(calls_, 90);
}

TEST_F(CudnnTest, AttentionIsThatOfTheReference) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const bool causal : {false, true}) {
      const Attrs attrs = {{"causal", causal}, {"scale", 0.4}};
      Attrs packed = attrs;
      packed.Set("heads", int64_t{2});
      ExpectTruth(MakeCall("scaled_dot_product_attention",
                           {{type, {2, 3, 9, 8}}, {type, {2, 3, 9, 8}}, {type, {2, 3, 9, 16}}}, attrs));
      ExpectTruth(MakeCall("packed_attention", {{type, {2, 13, 48}}}, packed));
      ExpectTruth(MakeCall("packed_attention_grad",
                           {{type, {2, 13, 48}}, {type, {2, 13, 16}}, {DType::kF32, {2, 2, 13}}, {type, {2, 13, 16}}},
                           packed));
    }
    ExpectTruth(MakeCall("scaled_dot_product_attention", {{type, {3, 5, 8}}, {type, {3, 11, 8}}, {type, {3, 11, 8}}},
                         {{"causal", false}}));
  }
}

TEST_F(CudnnTest, WhatTheLibraryLacksIsLeftToText) {
  const auto left = [&](const Call& call) {
    const auto program = Find(call);
    EXPECT_TRUE(program.ok()) << program.status();
    EXPECT_TRUE(!program.ok() || program->kernel == nullptr) << call.op->name;
  };
  left(MakeCall("conv2d", {{DType::kF64, {1, 1, 3, 3}}, {DType::kF64, {1, 1, 3, 3}}}, {}));
  left(MakeCall("conv2d", {{DType::kF32, {0, 1, 3, 3}}, {DType::kF32, {1, 1, 3, 3}}}, {}));
  const TensorType f32 = {DType::kF32, {1, 4, 8}}, odd = {DType::kBF16, {1, 4, 9}}, bf16 = {DType::kBF16, {1, 4, 8}},
                   more = {DType::kBF16, {1, 6, 8}};
  left(MakeCall("scaled_dot_product_attention", {f32, f32, f32}, {}));
  left(MakeCall("scaled_dot_product_attention", {odd, odd, odd}, {}));
  left(MakeCall("scaled_dot_product_attention", {bf16, more, more}, {{"causal", true}}));
  left(MakeCall("packed_attention", {{DType::kBF16, {1, 4, 27}}}, {{"heads", int64_t{3}}}));
}

// Unrepeatable, too rough and too large engines come first in what the emulation proposes.
TEST_F(CudnnTest, EnginesThatAreNotRepeatableOrExactAreRefused) {
  if (testing::OnRealDevice()) GTEST_SKIP() << "of the emulation";
  ConvolutionShape shape;
  shape.x = shape.y = {1, 4, 5, 5};
  shape.w = {4, 4, 1, 1};
  const auto target = CudnnTarget::ThisDevice();
  ASSERT_TRUE(target.ok()) << target.status();
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    shape.type = type;
    unsetenv("EMULATED_CUDNN_ENGINE");
    const auto plan = PlanConvolution(*target, shape);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ((*plan)->engine(), "engine 3");
    for (const char* engine : {"0", "1", "2"}) {
      setenv("EMULATED_CUDNN_ENGINE", engine, 1);
      EXPECT_TRUE(absl::IsUnimplemented(PlanConvolution(*target, shape).status())) << engine;
    }
    unsetenv("EMULATED_CUDNN_ENGINE");
    // Where float32 may be rounded, the engine that does so is the first.
    ConvolutionShape rounded = shape;
    rounded.tf32 = true;
    const auto faster = PlanConvolution(*target, rounded);
    ASSERT_TRUE(faster.ok()) << faster.status();
    EXPECT_EQ((*faster)->engine(), type == DType::kF32 ? "engine 1" : "engine 3");
  }
}

TEST_F(CudnnTest, AChoiceIsMadeAgainWhereItMayBeUsed) {
  if (testing::OnRealDevice()) GTEST_SKIP() << "of the emulation";
  ConvolutionShape shape;
  shape.x = shape.y = {1, 4, 5, 5};
  shape.w = {4, 4, 1, 1};
  const auto target = CudnnTarget::ThisDevice();
  ASSERT_TRUE(target.ok()) << target.status();
  const auto choice = [&](const std::string& recorded) {
    const auto plan = PlanConvolution(*target, shape, recorded);
    return plan.ok() ? (*plan)->choice() : plan.status().ToString();
  };
  setenv("EMULATED_CUDNN_FIRST", "4", 1);
  const std::string other = choice("");
  unsetenv("EMULATED_CUDNN_FIRST");
  EXPECT_EQ(other, "engine 4, 2=20, 14=140");
  EXPECT_EQ(choice(""), "engine 3");
  EXPECT_EQ(choice(other), other);
  // Other knobs, an engine that rounds, one that is not there, and no choice at all.
  for (const char* refused : {"engine 4, 2=20, 14=141", "engine 4", "engine 1", "engine 40", "", "garbage"})
    EXPECT_EQ(choice(refused), "engine 3") << refused;
}

// A graph with memory for x, w and y of 2 x 4 x 5 x 5 by 4 x 4 x 1 x 1.
struct Planted {
  std::unique_ptr<CudnnPlan> plan;
  std::vector<DeviceMemory> memory;
  std::vector<void*> operands;
};
StatusOr<Planted> Plant(Device* device, const CudnnGraph::Sizes& y_strides,
                        CudnnRounding rounding = CudnnRounding::kNone) {
  ASSIGN_OR_RETURN(const CudnnTarget target, CudnnTarget::ThisDevice());
  CudnnGraph graph(target);
  const int x = graph.Operand(DType::kF32, {2, 4, 5, 5}, {100, 1, 20, 4}),
            w = graph.Operand(DType::kF32, {4, 4, 1, 1}, {4, 1, 4, 4}),
            y = graph.Operand(DType::kF32, {2, 4, 5, 5}, y_strides);
  graph.Convolution(x, w, y, {{1, 1}, {1, 1}, {0, 0}, {0, 0}});
  Planted planted;
  ASSIGN_OR_RETURN(planted.plan, graph.Plan(rounding, int64_t{1} << 30));
  for (const int64_t bytes : {800, 64, 800}) {
    ASSIGN_OR_RETURN(planted.memory.emplace_back(), device->Allocate(bytes));
    planted.operands.push_back(planted.memory.back().data());
  }
  return planted;
}

TEST_F(CudnnTest, PlantedMistakesAreFound) {
  if (testing::OnRealDevice()) GTEST_SKIP() << "of the emulation";
  auto right = Plant(device_, {100, 1, 20, 4});
  ASSERT_TRUE(right.ok()) << right.status();
  auto workspace = device_->Allocate(right->plan->workspace_bytes());
  auto small = device_->Allocate(right->plan->workspace_bytes() - 1);
  ASSERT_TRUE(workspace.ok() && small.ok());
  EXPECT_TRUE(right->plan->Enqueue(stream_, right->operands, workspace->data()).ok());
  EXPECT_TRUE(stream_.Wait().ok());
  // A workspace that is too small, none, and operands in another order.
  EXPECT_FALSE(right->plan->Enqueue(stream_, right->operands, small->data()).ok());
  EXPECT_FALSE(right->plan->Enqueue(stream_, right->operands, nullptr).ok());
  std::vector<void*> swapped = {right->operands[1], right->operands[0], right->operands[2]};
  EXPECT_FALSE(right->plan->Enqueue(stream_, swapped, workspace->data()).ok());
  // Memory that is not aligned.
  std::vector<void*> shifted = right->operands;
  shifted[1] = static_cast<char*>(shifted[1]) + 4;
  EXPECT_FALSE(right->plan->Enqueue(stream_, shifted, workspace->data()).ok());
  // A stride that is too long reaches behind the end of y.
  auto wrong = Plant(device_, {200, 1, 40, 8});
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_FALSE(wrong->plan->Enqueue(stream_, wrong->operands, workspace->data()).ok());
  // Images of two formats.
  EXPECT_TRUE(absl::IsUnimplemented(Plant(device_, {100, 25, 5, 1}).status()));
}

// What the filter of engines is for: the first proposal gives other bits in each run.
TEST_F(CudnnTest, AnEngineThatIsNotRepeatableGivesOtherBits) {
  if (testing::OnRealDevice()) GTEST_SKIP() << "of the emulation";
  const auto bits = [&](const char* engine) {
    setenv("EMULATED_CUDNN_ENGINE", engine, 1);
    auto planted = Plant(device_, {100, 1, 20, 4}, CudnnRounding::kTf32);
    unsetenv("EMULATED_CUDNN_ENGINE");
    std::set<std::string> seen;
    if (!planted.ok()) return seen;
    auto workspace = device_->Allocate(planted->plan->workspace_bytes());
    for (int run = 0; run < 2 && workspace.ok(); ++run) {
      const std::vector<float> x(200, 0.3f), w(16, 0.7f);
      std::string y(800, '\0');
      EXPECT_TRUE(stream_.CopyIn(planted->operands[0], x.data(), 800).ok());
      EXPECT_TRUE(stream_.CopyIn(planted->operands[1], w.data(), 64).ok());
      EXPECT_TRUE(planted->plan->Enqueue(stream_, planted->operands, workspace->data()).ok());
      EXPECT_TRUE(stream_.CopyOut(y.data(), planted->operands[2], 800).ok());
      EXPECT_TRUE(stream_.Wait().ok());
      seen.insert(y);
    }
    return seen;
  };
  EXPECT_EQ(bits("0").size(), 0u);  // refused
  EXPECT_EQ(bits("3").size(), 1u);
  const std::set<std::string> exact = bits("3"), rough = bits("1");
  EXPECT_EQ(rough.size(), 1u);  // taken where float32 may be rounded
  EXPECT_NE(exact, rough);
}

TEST_F(CudnnTest, EveryFailureIsAnErrorThatNamesTheFunction) {
  if (testing::OnRealDevice()) GTEST_SKIP() << "of the emulation";
  const TensorType x = {DType::kBF16, {1, 4, 4, 8}}, qkv = {DType::kBF16, {1, 4, 24}}, y = {DType::kBF16, {1, 4, 8}};
  int pairs = FailEverywhere(MakeCall("conv2d", {x, {DType::kBF16, {2, 8, 3, 3}}}, {{"data_format", "NHWC"}}));
  pairs += FailEverywhere(MakeCall("packed_attention_grad", {qkv, y, {DType::kF32, {1, 1, 4}}, y},
                                   {{"heads", int64_t{1}}, {"causal", true}}));
  std::printf("%d pairs of function and call\n", pairs);
  EXPECT_GT(pairs, 300);
}

}  // namespace
}  // namespace mslua
