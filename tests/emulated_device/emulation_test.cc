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

}  // namespace
}  // namespace mslua
