#include "core/checkpoint/keeper.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "core/checkpoint/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class KeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TEST_TMPDIR");
    options_.directory = std::string(base != nullptr ? base : "/tmp") + "/keeper_test/ckpt";
    options_.prefix = "net";
    fs::remove_all(options_.directory);
  }
  static Status Save(const std::string& path) {
    const float x = 1;
    return SaveCheckpoint(path, RunState(), {{"x", {DType::kF32, {}}, &x}});
  }
  // Saves and keeps steps first..last of epoch 1, a minute each.
  Status SaveSteps(CheckpointKeeper* keeper, int first, int last) {
    for (int step = first; step <= last; ++step) {
      const std::string path = keeper->PathFor(1, step);
      RETURN_IF_ERROR(Save(path));
      RETURN_IF_ERROR(keeper->Saved(path, 60.0 * step));
    }
    return absl::OkStatus();
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(options_.directory)) {
      const std::string name = entry.path().filename();
      if (name[0] != '.') names.insert(name);  // locks
    }
    return names;
  }
  KeeperOptions options_;
};

TEST_F(KeeperTest, BadOptionsAreNamed) {
  KeeperOptions zero = options_;
  zero.save_checkpoint_steps = zero.keep_checkpoint_max = 0;
  EXPECT_THAT(CheckpointKeeper::Create(zero, "", 0).status().message(), HasSubstr("all 0"));
  KeeperOptions negative = options_;
  negative.keep_checkpoint_max = -1;
  EXPECT_THAT(CheckpointKeeper::Create(negative, "", 0).status().message(), HasSubstr("keep_checkpoint_max is -1"));
  KeeperOptions prefix = options_;
  prefix.prefix = "../net";
  EXPECT_THAT(CheckpointKeeper::Create(prefix, "", 0).status().message(), HasSubstr("'../net'"));
  EXPECT_FALSE(fs::exists(options_.directory));
  fs::create_directories(fs::path(options_.directory).parent_path());
  std::ofstream(options_.directory) << "a file";
  EXPECT_THAT(CheckpointKeeper::Create(options_, "", 0).status().message(), HasSubstr(options_.directory));
}

TEST_F(KeeperTest, StepsBeatSeconds) {
  options_.save_checkpoint_steps = 3;
  options_.save_checkpoint_seconds = 1;
  auto steps = CheckpointKeeper::Create(options_, "", 0);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_FALSE(steps->Due(1, 100));
  EXPECT_TRUE(steps->Due(3, 100));
  EXPECT_FALSE(steps->Due(4, 200));
  options_.save_checkpoint_steps = 0;
  options_.save_checkpoint_seconds = 10;
  auto seconds = CheckpointKeeper::Create(options_, "", 5);
  ASSERT_TRUE(seconds.ok());
  EXPECT_FALSE(seconds->Due(1, 14.9));
  EXPECT_TRUE(seconds->Due(2, 15));
  EXPECT_FALSE(seconds->Due(3, 16));
  EXPECT_TRUE(seconds->Due(4, 25));
}

TEST_F(KeeperTest, MaxBeatsMinutes) {
  options_.keep_checkpoint_max = 2;
  options_.keep_checkpoint_per_n_minutes = 1;
  auto keeper = CheckpointKeeper::Create(options_, "", 0);
  ASSERT_TRUE(keeper.ok());
  ASSERT_TRUE(SaveSteps(&*keeper, 1, 5).ok());
  EXPECT_THAT(Names(), ElementsAre("net-1_4.ckpt", "net-1_5.ckpt"));
}

TEST_F(KeeperTest, OneInSoManyMinutesAndTheNewest) {
  options_.keep_checkpoint_max = 0;
  options_.keep_checkpoint_per_n_minutes = 3;
  auto keeper = CheckpointKeeper::Create(options_, "", 0);
  ASSERT_TRUE(keeper.ok());
  ASSERT_TRUE(SaveSteps(&*keeper, 1, 8).ok());
  EXPECT_THAT(Names(), ElementsAre("net-1_3.ckpt", "net-1_6.ckpt", "net-1_8.ckpt"));
}

TEST_F(KeeperTest, NothingGoesBeforeTheNewestIsVerified) {
  options_.keep_checkpoint_max = 1;
  auto keeper = CheckpointKeeper::Create(options_, "", 0);
  ASSERT_TRUE(keeper.ok());
  ASSERT_TRUE(SaveSteps(&*keeper, 1, 1).ok());
  const std::string path = keeper->PathFor(1, 2);
  ASSERT_TRUE(Save(path).ok());
  EXPECT_THAT(Names(), ElementsAre("net-1_1.ckpt", "net-1_2.ckpt"));
  fs::resize_file(path + "/rank_0.safetensors", 20);
  EXPECT_TRUE(absl::IsDataLoss(keeper->Saved(path, 0)));
  EXPECT_THAT(Names(), ElementsAre("net-1_1.ckpt", "net-1_2.ckpt"));
}

TEST_F(KeeperTest, AnOldOneThatCannotBeRemovedStaysAndIsNamedOnce) {
  options_.keep_checkpoint_max = 1;
  // A removed checkpoint takes a temporary name first: here it is longer than a file name may be.
  options_.prefix.assign(240, 'p');
  auto keeper = CheckpointKeeper::Create(options_, "", 0);
  ASSERT_TRUE(keeper.ok());
  std::vector<Status> staying;
  for (const int step : {1, 2, 3}) {
    const std::string path = keeper->PathFor(1, step), elsewhere = options_.directory + "/x.ckpt";
    ASSERT_TRUE(Save(elsewhere).ok());
    fs::rename(elsewhere, path);
    const Status saved = keeper->Saved(path, 0);
    EXPECT_TRUE(saved.ok()) << saved;
    staying.push_back(keeper->TakeStaying());
  }
  EXPECT_TRUE(staying[0].ok()) << staying[0];
  EXPECT_THAT(staying[1].message(), HasSubstr("cannot remove " + keeper->PathFor(1, 1)));
  EXPECT_THAT(staying[2].message(), HasSubstr("cannot remove " + keeper->PathFor(1, 2)));
  EXPECT_TRUE(keeper->TakeStaying().ok());
  EXPECT_EQ(Names().size(), 3u);
}

TEST_F(KeeperTest, AnotherRunGetsAnotherPrefixAndAResumedOneItsOwn) {
  options_.keep_checkpoint_max = 2;
  for (const char* prefix : {"net", "net_1", "net_2"}) {
    auto keeper = CheckpointKeeper::Create(options_, "", 0);
    ASSERT_TRUE(keeper.ok());
    EXPECT_EQ(keeper->prefix(), prefix);
    ASSERT_TRUE(SaveSteps(&*keeper, 1, 3).ok());
  }
  auto resumed = CheckpointKeeper::Create(options_, options_.directory + "/net_1-1_2.ckpt/", 0);
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(resumed->prefix(), "net_1");
  // Step 3 is not of this lineage any more: it goes first.
  ASSERT_TRUE(SaveSteps(&*resumed, 7, 7).ok());
  EXPECT_EQ(Names().count("net_1-1_2.ckpt"), 1u);
  EXPECT_EQ(Names().count("net_1-1_3.ckpt"), 0u);
  EXPECT_EQ(Names().count("net_1-1_7.ckpt"), 1u);
  auto elsewhere = CheckpointKeeper::Create(options_, "/nowhere/net-1_1.ckpt", 0);
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_EQ(elsewhere->prefix(), "net_3");
}

}  // namespace
}  // namespace mslua::checkpoint
