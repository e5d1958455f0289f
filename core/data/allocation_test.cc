// What the loader allocates: nothing once it runs, and an error where there is no memory. Every operator new of this
// program is counted.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "absl/strings/match.h"
#include "core/data/loader.h"
#include "core/data/stand_in.h"
#include "gtest/gtest.h"

namespace {
std::atomic<int64_t> allocations{0};
std::atomic<size_t> largest{SIZE_MAX};  // more bytes at once are refused
}  // namespace

// Not inlined: the compiler would complain of malloc's memory given to delete.
__attribute__((noinline)) void* operator new(size_t size) {
  ++allocations;
  void* const memory = size > largest ? nullptr : std::malloc(size);
  if (memory != nullptr) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace mslua::data {
namespace {

TEST(AllocationTest, NoneAfterTheFirstEpochs) {
  const std::string path = testing::TempDir() + "/allocation_test";
  const Status made = MakeStandIn("cifar10", path, {100, 10});
  ASSERT_TRUE(made.ok() || absl::IsAlreadyExists(made)) << made;
  const Dataset dataset = Dataset(Source("cifar10", {{"dataset_dir", path}}))
                              .Map({{RandomCrop{32, 32, 4, 4, 4, 4}, RandomHorizontalFlip{}, Resize{48, 48},
                                     Rescale{1 / 255.0}, Normalize{{0.5}, {0.2}}, HWC2CHW{}},
                                    {"image"}})
                              .Map({{OneHot{10}, TypeCast{DType::kF32}}, {"label"}})
                              .Shuffle({50})
                              .Batch({16});
  const auto pipeline = Pipeline::Open(dataset, {});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  for (int workers : {0, 2}) {
    Loader loader(*pipeline, {workers});
    Batch batch;
    const auto run = [&](int epochs) {
      while (epochs > 0) {
        const auto more = loader.Next(&batch);
        ASSERT_TRUE(more.ok()) << more.status();
        if (!*more) --epochs;
      }
    };
    // Each worker allocates until it has met every size: how many epochs that takes depends on when it is scheduled.
    int64_t made_since = -1;
    for (int tries = 0; tries < 50 && made_since != 0; ++tries) {
      const int64_t before = allocations;
      run(20);
      made_since = allocations - before;
    }
    EXPECT_EQ(made_since, 0) << workers << " workers";
  }
}

TEST(AllocationTest, MissingMemoryIsAnErrorOnEveryThread) {
  const std::string path = testing::TempDir() + "/allocation_error_test";
  const Status made = MakeStandIn("cifar10", path, {8, 8});
  ASSERT_TRUE(made.ok() || absl::IsAlreadyExists(made)) << made;
  const auto pipeline = Pipeline::Open(
      Dataset(Source("cifar10", {{"dataset_dir", path}})).Map({{Resize{8, 60000}}, {"image"}}).Batch({1}), {});
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  for (int workers : {0, 2}) {
    largest = 500000;
    Loader loader(*pipeline, {workers});
    Batch batch;
    const Status none = loader.Next(&batch).status();
    largest = SIZE_MAX;
    EXPECT_TRUE(absl::IsResourceExhausted(none)) << none;
    EXPECT_TRUE(absl::StrContains(none.message(), "out of memory for the samples of batch 1 of epoch 1; fix: smaller"))
        << none;
  }
}

}  // namespace
}  // namespace mslua::data
