// What the emulated device finds: mistakes in kernels and in the order of work, planted one by one.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/device/device.h"
#include "core/device/kernel_set.h"
#include "core/op/device_text.h"
#include "tests/emulated_device/use_emulated_device.h"

namespace mslua {
namespace {

constexpr int64_t kBytes = 256 * sizeof(float);

class EmulationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(testing::UseEmulatedDevice().ok());
    auto device = Device::Open(0);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *device;
    auto emulation = testing::FindEmulation();
    ASSERT_TRUE(emulation.ok()) << emulation.status();
    emulation_ = *emulation;
    emulation_.forget();
    emulation_.order("forward", 1);
    auto stream = device_->MakeStream();
    ASSERT_TRUE(stream.ok());
    stream_ = *std::move(stream);
    auto memory = device_->Allocate(kBytes);
    ASSERT_TRUE(memory.ok());
    memory_ = *std::move(memory);
  }
  void TearDown() override { emulation_.forget(); }

  // A kernel of one pointer, `x`.
  StatusOr<DeviceFunction> Kernel(const std::string& statements) {
    KernelSet kernels(device_, DevicePrelude(), "");
    const int number = kernels.Add(absl::StrCat("  float* x = (float*)p.at[0];\n", statements), 1);
    RETURN_IF_ERROR(kernels.Compile());
    return kernels.function(number);
  }
  Status Launch(const std::string& statements) {
    ASSIGN_OR_RETURN(const DeviceFunction function, Kernel(statements));
    void* pointer = memory_.data();
    return stream_.Launch(function, 1, 256, {&pointer, 1});
  }
  StatusOr<std::vector<float>> Read() {
    std::vector<float> values(256);
    RETURN_IF_ERROR(stream_.CopyOut(values.data(), memory_.data(), kBytes));
    RETURN_IF_ERROR(stream_.Wait());
    return values;
  }
  // The values that a kernel leaves when the threads of a block run in that order.
  std::vector<float> InOrder(const char* order, const std::string& statements) {
    emulation_.order(order, 3);
    EXPECT_TRUE(stream_.Fill(memory_.data(), 0, kBytes).ok());
    EXPECT_TRUE(Launch(statements).ok());
    auto values = Read();
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : std::vector<float>();
  }

  Device* device_ = nullptr;
  testing::Emulation emulation_ = {};
  DeviceStream stream_;
  DeviceMemory memory_;
};

// Each thread takes what its neighbour has left in shared memory.
std::string Neighbour(bool barrier) {
  return absl::StrCat("  __shared__ float held[256];\n  held[threadIdx.x] = (float)threadIdx.x;\n",
                      barrier ? "  __syncthreads();\n" : "  if (false) __syncthreads();\n",
                      "  x[threadIdx.x] = held[(threadIdx.x + 1) % 256];\n");
}

TEST_F(EmulationTest, MissingBarrierGivesOtherBitsInAnotherOrderOfThreads) {
  EXPECT_EQ(InOrder("forward", Neighbour(true)), InOrder("backward", Neighbour(true)));
  EXPECT_NE(InOrder("forward", Neighbour(false)), InOrder("backward", Neighbour(false)));
}

TEST_F(EmulationTest, BarrierThatSomeThreadsDoNotReachIsAnError) {
  ASSERT_TRUE(Launch("  if (threadIdx.x < 7) __syncthreads();\n  x[0] = 1;\n").ok());
  EXPECT_TRUE(absl::StrContains(stream_.Wait().message(), "CUDA_ERROR_LAUNCH_FAILED"));
}

TEST_F(EmulationTest, WriteBehindTheEndIsAnError) {
  ASSERT_TRUE(Launch("  x[256] = 1;\n").ok());
  EXPECT_TRUE(absl::StrContains(stream_.Wait().message(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_F(EmulationTest, WriteBeforeTheBeginningIsAnError) {
  ASSERT_TRUE(Launch("  x[-1] = 1;\n").ok());
  EXPECT_TRUE(absl::StrContains(stream_.Wait().message(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_F(EmulationTest, CopyBehindTheEndIsAnError) {
  std::vector<char> host(2 * kBytes);
  EXPECT_FALSE(stream_.CopyIn(memory_.data(), host.data(), kBytes + 1).ok());
}

TEST_F(EmulationTest, MemoryThatNobodyHasWrittenIsNotZero) {
  const auto values = Read();
  ASSERT_TRUE(values.ok());
  uint32_t bits = 0;
  std::memcpy(&bits, values->data(), sizeof bits);
  EXPECT_EQ(bits, 0xcdcdcdcdu);
}

TEST_F(EmulationTest, HostCodeThatReadsDeviceMemoryDies) {
  EXPECT_DEATH({ std::printf("%f", static_cast<double>(*static_cast<volatile float*>(memory_.data()))); }, "");
}

// Two streams, one fills what the other has to add to.
TEST_F(EmulationTest, MissingWaitBetweenStreamsGivesOtherValuesForSomeSeeds) {
  auto other = device_->MakeStream();
  ASSERT_TRUE(other.ok());
  const auto add = Kernel("  x[threadIdx.x] = x[threadIdx.x] * 2 + 1;\n");
  ASSERT_TRUE(add.ok()) << add.status();
  void* pointer = memory_.data();
  int wrong = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    emulation_.order("forward", seed);
    ASSERT_TRUE(stream_.Fill(memory_.data(), 0x3f, kBytes).ok());
    ASSERT_TRUE(stream_.Wait().ok());
    ASSERT_TRUE(stream_.Fill(memory_.data(), 0, kBytes).ok());
    ASSERT_TRUE(other->Launch(*add, 1, 256, {&pointer, 1}).ok());
    ASSERT_TRUE(other->Wait().ok());
    ASSERT_TRUE(stream_.Wait().ok());
    const auto values = Read();
    ASSERT_TRUE(values.ok());
    wrong += (*values)[0] != 1;
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 20);
}

// The values of pinned memory count when the copy runs, not when it is asked for.
TEST_F(EmulationTest, PinnedMemoryThatIsWrittenTooSoonShows) {
  auto pinned = device_->AllocatePinned(kBytes);
  ASSERT_TRUE(pinned.ok());
  std::memset(pinned->data(), 0, kBytes);
  ASSERT_TRUE(stream_.CopyIn(memory_.data(), pinned->data(), kBytes).ok());
  static_cast<float*>(pinned->data())[0] = 5;
  const auto values = Read();
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[0], 5);
}

TEST_F(EmulationTest, MemoryOfTheHostIsTakenWhenTheCopyIsAskedFor) {
  std::vector<float> host(256, 1);
  ASSERT_TRUE(stream_.CopyIn(memory_.data(), host.data(), kBytes).ok());
  host[0] = 5;
  const auto values = Read();
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[0], 1);
}

TEST_F(EmulationTest, CapturedWorkRunsWhenItIsLaunchedOnly) {
  ASSERT_TRUE(stream_.Fill(memory_.data(), 0, kBytes).ok());
  ASSERT_TRUE(stream_.Wait().ok());
  ASSERT_TRUE(stream_.BeginCapture().ok());
  ASSERT_TRUE(Launch("  x[threadIdx.x] += 1;\n").ok());
  auto graph = stream_.EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ((*Read())[0], 0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream_.Run(*graph).ok());
  EXPECT_EQ((*Read())[0], 3);
}

TEST_F(EmulationTest, TextThatDoesNotCompileIsAnErrorWithTheCompilersLines) {
  const auto kernel = Kernel("  x[0] = nonsense;\n");
  EXPECT_TRUE(absl::StrContains(kernel.status().message(), "nonsense"));
}

TEST_F(EmulationTest, MoreMemoryThanThereIsIsAnErrorWithTheDriversName) {
  EXPECT_TRUE(absl::StrContains(device_->Allocate(int64_t{1} << 40).status().message(), "CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_F(EmulationTest, HandlesThatAreHeldAreCounted) {
  const int before = emulation_.held();
  {
    auto stream = device_->MakeStream();
    auto memory = device_->Allocate(100);
    auto pinned = device_->AllocatePinned(100);
    EXPECT_EQ(emulation_.held(), before + 3);
  }
  EXPECT_EQ(emulation_.held(), before);
}

// The event stands on a stream that has nothing to do with the work.
TEST_F(EmulationTest, EventOfTheWrongStreamGivesOtherValuesForSomeSeeds) {
  auto other = device_->MakeStream();
  auto event = device_->MakeEvent();
  ASSERT_TRUE(other.ok() && event.ok());
  const auto wrong = [&](DeviceStream& recorded) {
    int count = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
      emulation_.order("forward", seed);
      float got = 0;
      EXPECT_TRUE(stream_.Fill(memory_.data(), 0, kBytes).ok() && stream_.Wait().ok());
      EXPECT_TRUE(Launch("  x[threadIdx.x] = 7;\n").ok());
      EXPECT_TRUE(recorded.Record(*event).ok() && other->WaitFor(*event).ok());
      EXPECT_TRUE(other->CopyOut(&got, memory_.data(), sizeof got).ok() && other->Wait().ok() && stream_.Wait().ok());
      count += got != 7;
    }
    return count;
  };
  EXPECT_EQ(wrong(stream_), 0);
  EXPECT_GT(wrong(*other), 0);
}

TEST_F(EmulationTest, CapturedPointerToMemoryThatIsGoneIsAnError) {
  auto short_lived = device_->Allocate(kBytes);
  ASSERT_TRUE(short_lived.ok());
  const auto function = Kernel("  x[threadIdx.x] = 1;\n");
  ASSERT_TRUE(function.ok());
  void* pointer = short_lived->data();
  ASSERT_TRUE(stream_.BeginCapture().ok());
  ASSERT_TRUE(stream_.Launch(*function, 1, 256, {&pointer, 1}).ok());
  const auto graph = stream_.EndCapture();
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(stream_.Run(*graph).ok() && stream_.Wait().ok());
  *short_lived = DeviceMemory();
  ASSERT_TRUE(stream_.Run(*graph).ok());
  EXPECT_TRUE(absl::StrContains(stream_.Wait().message(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
}

// A step reports a wrong value; the next one has none, and clears the word or does not.
TEST_F(EmulationTest, FaultThatIsNotClearedIsSeenInTheNextStep) {
  const auto step = [&](bool clears, bool bad) {
    if (clears) {
      EXPECT_TRUE(stream_.Fill(memory_.data(), 0, kBytes).ok());
    }
    EXPECT_TRUE(Launch(bad ? "  if (threadIdx.x == 3) x[0] = 1;\n" : "  (void)x;\n").ok());
    return (*Read())[0];
  };
  EXPECT_EQ(step(true, true), 1);
  EXPECT_EQ(step(false, false), 1);  // planted
  EXPECT_EQ(step(true, false), 0);
}

TEST_F(EmulationTest, WrongStrideOfABroadcastGivesOtherValues) {
  const auto run = [&](const std::string& index) {
    return InOrder("forward", absl::StrCat("  const i64 i = threadIdx.x;\n  x[i] = (float)(", index, ");\n"));
  };
  const Shape whole = {32, 8};
  const std::vector<float> right = run(BroadcastIndex("i", whole, {8})),
                           planted = run(BroadcastIndex("i", whole, {32, 1}));
  for (size_t i = 0; i < right.size(); ++i) ASSERT_EQ(right[i], static_cast<float>(i % 8));
  EXPECT_NE(right, planted);
}

// Among the algorithms that may add in any order there is none that gives the same bits twice.
TEST_F(EmulationTest, ProductThatMayAddInAnyOrderIsRefused) {
  const auto library = cuda::OpenCublasLt();
  ASSERT_TRUE(library.ok()) << library.status();
  const cuda::CublasLt& call = (*library)->call;
  cuda::BlasHandle handle = nullptr;
  cuda::BlasMatmul matmul = nullptr;
  cuda::BlasLayout layout = nullptr;
  cuda::BlasPreference preference = nullptr;
  ASSERT_EQ(call.cublasLtCreate(&handle), 0);
  ASSERT_EQ(call.cublasLtMatmulDescCreate(&matmul, cuda::kCompute32, cuda::kReal32), 0);
  ASSERT_EQ(call.cublasLtMatrixLayoutCreate(&layout, cuda::kReal32, 8, 8, 8), 0);
  ASSERT_EQ(call.cublasLtMatmulPreferenceCreate(&preference), 0);
  const auto heuristic = [&] {
    cuda::BlasHeuristic found = {};
    int count = 0;
    return call.cublasLtMatmulAlgoGetHeuristic(handle, matmul, layout, layout, layout, layout, preference, 1, &found,
                                               &count);
  };
  EXPECT_NE(heuristic(), 0);  // planted: the schemes were not restricted
  const uint32_t schemes = cuda::kReductionMask & ~cuda::kReductionInPlace;
  ASSERT_EQ(call.cublasLtMatmulPreferenceSetAttribute(preference, cuda::kReductionSchemes, &schemes, sizeof schemes),
            0);
  EXPECT_EQ(heuristic(), 0);
  // An epilogue that is not emulated; one whose operand is missing, or has rows that the library does not take.
  const auto set = [&](int attribute, auto value) {
    EXPECT_EQ(call.cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof value), 0);
  };
  set(cuda::kEpilogue, uint32_t{6});
  EXPECT_NE(heuristic(), 0);  // planted
  set(cuda::kEpilogue, cuda::kGeluAuxBias);
  EXPECT_NE(heuristic(), 0);  // planted
  void* const at = memory_.data();
  set(cuda::kBiasPointer, at);
  set(cuda::kAuxPointer, at);
  set(cuda::kAuxStride, int64_t{12});
  EXPECT_NE(heuristic(), 0);  // planted
  set(cuda::kAuxStride, int64_t{8});
  EXPECT_EQ(heuristic(), 0);
  set(cuda::kEpilogue, cuda::kNoEpilogue);
  const float one = 1;
  const cuda::BlasAlgorithm algorithm = {};
  EXPECT_NE(
      call.cublasLtMatmul(handle, matmul, &one, memory_.data(), layout, memory_.data(), layout, &one, memory_.data(),
                          layout, memory_.data(), layout, &algorithm, nullptr, 0, stream_.handle()),
      0);  // planted: no workspace
  call.cublasLtMatmulPreferenceDestroy(preference);
  call.cublasLtMatrixLayoutDestroy(layout);
  call.cublasLtMatmulDescDestroy(matmul);
  call.cublasLtDestroy(handle);
}

TEST_F(EmulationTest, WaitingInsideACaptureIsAnError) {
  auto event = device_->MakeEvent();
  ASSERT_TRUE(event.ok() && stream_.Record(*event).ok());
  ASSERT_TRUE(stream_.BeginCapture().ok());
  EXPECT_FALSE(stream_.WaitFor(*event).ok());
  EXPECT_FALSE(stream_.EndCapture().ok());
  ASSERT_TRUE(stream_.BeginCapture().ok());
  EXPECT_FALSE(stream_.Wait().ok());
  EXPECT_FALSE(stream_.EndCapture().ok());
  ASSERT_TRUE(stream_.BeginCapture().ok());
  EXPECT_FALSE(event->Reached().ok());
  EXPECT_FALSE(device_->Allocate(64).ok());
  EXPECT_FALSE(stream_.EndCapture().ok());
}

// x = 1 on the first stream, x = 2 x on the other one, x = x + 5 on the first again.
TEST_F(EmulationTest, StreamsThatAreCapturedTogetherWaitAsTheirEventsSay) {
  auto other = device_->MakeStream();
  auto fork = device_->MakeEvent(), join = device_->MakeEvent(), done = device_->MakeEvent();
  ASSERT_TRUE(other.ok() && fork.ok() && join.ok() && done.ok());
  const auto one = Kernel("  x[threadIdx.x] = 1;\n"), twice = Kernel("  x[threadIdx.x] *= 2;\n"),
             more = Kernel("  x[threadIdx.x] += 5;\n");
  ASSERT_TRUE(one.ok() && twice.ok() && more.ok());
  void* pointer = memory_.data();
  const auto capture = [&](bool waits, bool joins) -> StatusOr<CapturedGraph> {
    RETURN_IF_ERROR(stream_.BeginCapture());
    RETURN_IF_ERROR(stream_.Launch(*one, 1, 256, {&pointer, 1}));
    RETURN_IF_ERROR(stream_.Record(*fork));
    RETURN_IF_ERROR(other->WaitFor(*fork));
    RETURN_IF_ERROR(other->Launch(*twice, 1, 256, {&pointer, 1}));
    RETURN_IF_ERROR(other->RecordInLaunches(*done));
    RETURN_IF_ERROR(other->Record(*join));
    if (waits) RETURN_IF_ERROR(stream_.WaitFor(*join));
    RETURN_IF_ERROR(stream_.Launch(*more, 1, 256, {&pointer, 1}));
    if (!waits && joins) RETURN_IF_ERROR(stream_.WaitFor(*join));
    return stream_.EndCapture();
  };
  const auto wrong = [&](const CapturedGraph& graph) {
    int count = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
      emulation_.order("forward", seed);
      EXPECT_TRUE(stream_.Run(graph).ok());
      EXPECT_TRUE(done->Wait().ok());  // of this run
      const auto reached = done->Reached();
      EXPECT_TRUE(reached.ok() && *reached);
      count += (*Read())[0] != 7;
    }
    return count;
  };
  const int held = emulation_.held();
  {
    const auto right = capture(true, true), planted = capture(false, true);
    ASSERT_TRUE(right.ok() && planted.ok()) << right.status() << planted.status();
    EXPECT_EQ(wrong(*right), 0);
    EXPECT_GT(wrong(*planted), 0);
  }
  // A stream that does not come back.
  EXPECT_TRUE(absl::StrContains(capture(false, false).status().message(), "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"));
  EXPECT_EQ(emulation_.held(), held);
  // An event that has been recorded in a capture means nothing outside.
  EXPECT_TRUE(absl::StrContains(join->Reached().status().message(), "CUDA_ERROR_CAPTURED_EVENT"));
  EXPECT_FALSE(stream_.RecordInLaunches(*done).ok());
}

TEST_F(EmulationTest, MemoryThatIsFreedTwiceIsAnError) {
  const auto& driver = device_->driver();
  cuda::Address address = 0;
  ASSERT_EQ(driver.call.cuMemAlloc_v2(&address, 64), cuda::kSuccess);
  EXPECT_EQ(driver.call.cuMemFree_v2(address), cuda::kSuccess);
  EXPECT_NE(driver.call.cuMemFree_v2(address), cuda::kSuccess);
}

TEST_F(EmulationTest, ResultThatIsReadBeforeTheWaitIsNotThereYet) {
  auto pinned = device_->AllocatePinned(sizeof(float));
  ASSERT_TRUE(pinned.ok());
  float* const result = static_cast<float*>(pinned->data());
  *result = -1;
  ASSERT_TRUE(Launch("  x[threadIdx.x] = 7;\n").ok());
  ASSERT_TRUE(stream_.CopyOut(result, memory_.data(), sizeof(float)).ok());
  EXPECT_EQ(*result, -1);  // planted
  ASSERT_TRUE(stream_.Wait().ok());
  EXPECT_EQ(*result, 7);
}

TEST_F(EmulationTest, MoreThreadsThanABlockHasAreAnError) {
  const auto function = Kernel("  x[0] = 1;\n");
  ASSERT_TRUE(function.ok());
  void* pointer = memory_.data();
  EXPECT_FALSE(stream_.Launch(*function, 1, 2048, {&pointer, 1}).ok());
  EXPECT_FALSE(stream_.Launch(*function, 0, 256, {&pointer, 1}).ok());
}

// The mistakes that are planted here, and the test that finds each.
constexpr std::pair<const char*, const char*> kPlanted[] = {
    {"a barrier is missing", "MissingBarrierGivesOtherBitsInAnotherOrderOfThreads"},
    {"some threads do not reach a barrier", "BarrierThatSomeThreadsDoNotReachIsAnError"},
    {"a write past an output", "WriteBehindTheEndIsAnError"},
    {"a write before an output", "WriteBeforeTheBeginningIsAnError"},
    {"a copy past the end", "CopyBehindTheEndIsAnError"},
    {"a read of memory that nobody has written", "MemoryThatNobodyHasWrittenIsNotZero"},
    {"host code reads device memory", "HostCodeThatReadsDeviceMemoryDies"},
    {"an event is missing", "MissingWaitBetweenStreamsGivesOtherValuesForSomeSeeds"},
    {"an event on the wrong stream", "EventOfTheWrongStreamGivesOtherValuesForSomeSeeds"},
    {"a slot of scalars is written again too soon", "PinnedMemoryThatIsWrittenTooSoonShows"},
    {"a result is read before the wait", "ResultThatIsReadBeforeTheWaitIsNotThereYet"},
    {"a captured pointer to memory that is gone", "CapturedPointerToMemoryThatIsGoneIsAnError"},
    {"the word of wrong values is not cleared", "FaultThatIsNotClearedIsSeenInTheNextStep"},
    {"a wrong stride of a broadcast", "WrongStrideOfABroadcastGivesOtherValues"},
    {"an algorithm that adds in any order", "ProductThatMayAddInAnyOrderIsRefused"},
    {"a product's epilogue that is not known", "ProductThatMayAddInAnyOrderIsRefused"},
    {"a handle that is not released", "HandlesThatAreHeldAreCounted"},
    {"memory that is freed twice", "MemoryThatIsFreedTwiceIsAnError"},
    {"a wait inside a capture", "WaitingInsideACaptureIsAnError"},
    {"an event is missing inside a capture", "StreamsThatAreCapturedTogetherWaitAsTheirEventsSay"},
    {"a captured stream does not come back", "StreamsThatAreCapturedTogetherWaitAsTheirEventsSay"},
    {"too large a block", "MoreThreadsThanABlockHasAreAnError"},
    {"text that does not compile", "TextThatDoesNotCompileIsAnErrorWithTheCompilersLines"},
};

TEST(PlantedMistakes, EachHasATest) {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  int found = 0;
  for (const auto& [mistake, test] : kPlanted) {
    bool there = false;
    for (int s = 0; s < all.total_test_suite_count(); ++s) {
      const ::testing::TestSuite& suite = *all.GetTestSuite(s);
      for (int t = 0; t < suite.total_test_count(); ++t)
        there = there || suite.GetTestInfo(t)->name() == std::string(test);
    }
    EXPECT_TRUE(there) << mistake << ": " << test;
    found += there;
  }
  std::printf("%d mistakes are planted\n", found);
  EXPECT_GE(found, 15);
}

}  // namespace
}  // namespace mslua
