#include "core/checkpoint/unfinished_save.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/async_saver.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class UnfinishedSaveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TEST_TMPDIR");
    folder_ = std::string(base != nullptr ? base : "/tmp") + "/unfinished_save_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    saver_.KeepUnfinished([this](int descriptor) {
      kept_.push_back(descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
      return absl::OkStatus();
    });
  }
  void TearDown() override {
    for (const int descriptor : kept_) {
      if (descriptor >= 0) close(descriptor);
    }
  }

  std::string PathOf(int64_t step) const { return CheckpointPath(folder_, "net", 1, step); }
  void Save(int64_t step, size_t elements) {
    const std::vector<float> w(elements, static_cast<float>(step));
    const uint8_t odd[3] = {1, 2, 3};
    RunState run;
    run.step = step;
    run.counters["eval.best"] = 0.5;
    const Status started = saver_.Start(
        PathOf(step), run,
        {{"odd", {DType::kU8, {3}}, odd}, {"w", {DType::kF32, {static_cast<int64_t>(elements)}}, w.data()}});
    ASSERT_TRUE(started.ok()) << started;
    ASSERT_TRUE(saver_.Wait().ok());
  }
  static std::string BytesOf(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Flips a bit in the memory that was kept first.
  void Damage(off_t at) {
    char byte = 0;
    ASSERT_EQ(pread(kept_[0], &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(pwrite(kept_[0], &byte, 1, at), 1);
  }

  std::string folder_;
  std::vector<int> kept_;  // as the saver asked: a descriptor, or -1
  AsyncSaver saver_;
};

TEST_F(UnfinishedSaveTest, WritesWhatItsProcessWouldHaveWritten) {
  Save(4, 700000);
  ASSERT_EQ(kept_.size(), 2u);
  EXPECT_EQ(kept_[1], -1);
  const std::string manifest = BytesOf(PathOf(4) + "/MANIFEST.json"), file = BytesOf(PathOf(4) + "/rank_0.safetensors");
  fs::remove_all(PathOf(4));
  const auto save = UnfinishedSave::Open(kept_[0]);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_EQ((*save)->path(), PathOf(4));
  EXPECT_EQ((*save)->run().step, 4);
  const auto companions = std::make_shared<const std::vector<std::pair<std::string, std::string>>>(
      std::vector<std::pair<std::string, std::string>>{{"tokenizer.json", "{}"}});
  ASSERT_TRUE((*save)->Finish(companions).ok());
  EXPECT_EQ(BytesOf(PathOf(4) + "/MANIFEST.json"), manifest);
  EXPECT_EQ(BytesOf(PathOf(4) + "/rank_0.safetensors"), file);
  EXPECT_EQ(BytesOf(PathOf(4) + "/tokenizer.json"), "{}");
  // One that is there is replaced by itself.
  ASSERT_TRUE((*save)->Finish(companions).ok());
  EXPECT_TRUE(VerifyCheckpoint(PathOf(4)).ok());
}

// The memory of one save is used again for the next.
TEST_F(UnfinishedSaveTest, TheNextSaveIsInItsPlace) {
  Save(4, 1000);
  Save(8, 900);
  const auto second = UnfinishedSave::Open(kept_[0]);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->run().step, 8);
  Save(12, 5000);  // needs more memory
  EXPECT_EQ(UnfinishedSave::Open(kept_[0]).status().code(), absl::StatusCode::kNotFound);
  const auto third = UnfinishedSave::Open(kept_[4]);
  ASSERT_TRUE(third.ok()) << third.status();
  fs::remove_all(PathOf(12));
  ASSERT_TRUE((*third)->Finish(nullptr).ok());
  EXPECT_TRUE(VerifyCheckpoint(PathOf(12)).ok());
}

TEST_F(UnfinishedSaveTest, DamagedMemoryIsNotSaved) {
  Save(4, 1000);
  fs::remove_all(PathOf(4));
  Damage(4096 + 2000);  // in the file
  auto save = UnfinishedSave::Open(kept_[0]);
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_THAT(std::string((*save)->Finish(nullptr).message()), HasSubstr("damaged"));
  EXPECT_FALSE(fs::exists(PathOf(4)));
  Damage(8);  // in what says what is there
  EXPECT_EQ(UnfinishedSave::Open(kept_[0]).status().code(), absl::StatusCode::kDataLoss);
  Damage(8);
  Damage(0);
  EXPECT_EQ(UnfinishedSave::Open(kept_[0]).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_EQ(ftruncate(kept_[0], 100), 0);
  EXPECT_EQ(UnfinishedSave::Open(kept_[0]).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(UnfinishedSaveTest, WhatIsNotWholeIsNotThere) {
  const auto memory = SaveMemory::Make(100);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(UnfinishedSave::Open((*memory)->descriptor()).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE((*memory)->Complete("x", "no manifest", 10).ok());
  EXPECT_EQ(UnfinishedSave::Open((*memory)->descriptor()).status().code(), absl::StatusCode::kDataLoss);
  (*memory)->Clear();
  EXPECT_EQ(UnfinishedSave::Open((*memory)->descriptor()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace mslua::checkpoint
