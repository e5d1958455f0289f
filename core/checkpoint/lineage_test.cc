#include "core/checkpoint/lineage.h"

#include <sys/stat.h>
#include <utime.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/begin_lineage.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/keeper.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class LineageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TEST_TMPDIR");
    folder_ = absl::StrCat(base != nullptr ? base : "/tmp", "/lineage_test");
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  std::string PathOf(const std::string& prefix, int64_t step) const { return CheckpointPath(folder_, prefix, 1, step); }

  // A training that resumes from `from` (empty: begins), and saves at each of `steps`.
  void Train(const std::string& prefix, const std::string& from, const std::vector<int64_t>& steps, int64_t keep = 0) {
    auto lineage = BeginLineage(directories_.empty() ? std::vector<std::string>{folder_} : directories_, from);
    ASSERT_TRUE(lineage.ok()) << lineage.status();
    KeeperOptions options;
    options.directory = folder_;
    options.prefix = prefix;
    options.keep_checkpoint_max = keep;
    auto keeper = CheckpointKeeper::Create(options, from, 0);
    ASSERT_TRUE(keeper.ok()) << keeper.status();
    for (const int64_t step : steps) {
      RunState run;
      ++lineage->generation;
      run.lineage = *lineage;
      run.step = step;
      const float x = static_cast<float>(step);
      const std::string path = keeper->PathFor(1, step);
      ASSERT_TRUE(SaveCheckpoint(path, run, {{"x", {DType::kF32, {}}, &x}}).ok());
      ASSERT_TRUE(keeper->Saved(path, 0).ok());
      lineage->parent = fs::path(path).filename().string();
      runs_.insert(lineage->run);
    }
  }
  void Damage(const std::string& path) { fs::resize_file(path + "/rank_0.safetensors", 20); }
  std::string Newest() {
    const auto checkpoint = LoadCheckpoint(folder_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    if (!checkpoint.ok()) return "";
    note_ = (*checkpoint)->note();
    return fs::path((*checkpoint)->path()).filename().string();
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name[0] != '.') names.insert(name);
    }
    return names;
  }

  std::string folder_, note_;
  std::vector<std::string> directories_;  // that the generations count on in; empty: folder_
  std::set<std::string> runs_;
};

TEST_F(LineageTest, TheLatestSavedIsTheNewestNotTheFurthest) {
  Train("net", "", {10, 20, 30, 40, 50, 60});
  EXPECT_EQ(Newest(), "net-1_60.ckpt");
  EXPECT_EQ(note_, "");
  Train("net", PathOf("net", 20), {30, 40});
  EXPECT_EQ(runs_.size(), 2u);
  EXPECT_EQ(Newest(), "net-1_40.ckpt");
  EXPECT_THAT(note_, AllOf(HasSubstr("ignored "), HasSubstr("net-1_60.ckpt (step 60) and 1 more"),
                           HasSubstr("net-1_40.ckpt (step 40) does not continue")));
  // It continues, and nothing is ignored any more.
  Train("net", PathOf("net", 40), {50, 60, 70});
  EXPECT_EQ(runs_.size(), 2u);
  EXPECT_EQ(Newest(), "net-1_70.ckpt");
  EXPECT_EQ(note_, "");
}

TEST_F(LineageTest, ADamagedCheckpointFallsBackOnItsOwnLineage) {
  Train("net", "", {10, 20, 30, 40, 50, 60});
  Train("net", PathOf("net", 20), {30, 40});
  Damage(PathOf("net", 40));
  EXPECT_EQ(Newest(), "net-1_30.ckpt");
  Damage(PathOf("net", 30));
  EXPECT_EQ(Newest(), "net-1_20.ckpt");
  EXPECT_THAT(note_, HasSubstr("passed over "));
  Damage(PathOf("net", 20));
  Damage(PathOf("net", 10));
  EXPECT_EQ(Newest(), "net-1_60.ckpt");
}

TEST_F(LineageTest, FileTimesDoNotOrderTwoSeries) {
  Train("net", "", {10, 20, 30});
  Train("net", "", {10, 20});
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    const bool first = absl::StrContains(entry.path().string(), "/net-");
    const utimbuf times = {first ? 2000000000 : 1000000000, first ? 2000000000 : 1000000000};
    utime(entry.path().c_str(), &times);
  }
  EXPECT_EQ(Newest(), "net_1-1_20.ckpt");
}

TEST_F(LineageTest, ForksOfForksAreFollowed) {
  Train("net", "", {10, 20, 30, 40});
  Train("net", PathOf("net", 20), {25, 35});
  Train("net", PathOf("net", 25), {28});
  for (const int64_t step : {28, 25, 20, 10}) {
    EXPECT_EQ(Newest(), absl::StrCat("net-1_", step, ".ckpt"));
    Damage(PathOf("net", step));
  }
  EXPECT_EQ(Newest(), "net-1_35.ckpt");
}

TEST_F(LineageTest, TheNumberToKeepIsOfTheLineageAndAbandonedOnesGoFirst) {
  Train("net", "", {10, 20, 30, 40, 50});
  Train("net", PathOf("net", 20), {25}, 3);
  EXPECT_EQ(Names(), (std::set<std::string>{"net-1_10.ckpt", "net-1_20.ckpt", "net-1_25.ckpt"}));
  Train("net", PathOf("net", 25), {30}, 3);
  EXPECT_EQ(Names(), (std::set<std::string>{"net-1_20.ckpt", "net-1_25.ckpt", "net-1_30.ckpt"}));
  // Another series in this directory counts by itself.
  Train("net", "", {1, 2}, 1);
  EXPECT_EQ(Names(), (std::set<std::string>{"net-1_20.ckpt", "net-1_25.ckpt", "net-1_30.ckpt", "net_1-1_2.ckpt"}));
}

// keep_checkpoint_max has removed the regular ones that the best one came from.
TEST_F(LineageTest, TheBestOneIsOfTheSeriesThatHasGoneFurther) {
  directories_ = {folder_, folder_ + "/best"};
  Train("net", "", {10, 20});
  const std::string best = folder_ + "/best/net-1_20.ckpt";
  fs::create_directories(folder_ + "/best");
  fs::rename(PathOf("net", 20), best);
  Train("net", best, {30, 40, 50}, 2);
  EXPECT_EQ(Names(), (std::set<std::string>{"best", "net-1_40.ckpt", "net-1_50.ckpt"}));
  Train("net", best, {25}, 2);
  EXPECT_EQ(Names(), (std::set<std::string>{"best", "net-1_25.ckpt", "net-1_50.ckpt"}));
  EXPECT_EQ(Newest(), "net-1_25.ckpt");
  EXPECT_THAT(note_, HasSubstr("net-1_50.ckpt (step 50)"));
  Train("net", PathOf("net", 25), {50}, 2);
  EXPECT_EQ(Names(), (std::set<std::string>{"best", "net-1_25.ckpt", "net-1_50.ckpt"}));
}

TEST_F(LineageTest, AnAbandonedCheckpointOfTheSameStepIsReplaced) {
  Train("net", "", {10, 20, 30});
  const auto before = Checkpoint::Open(PathOf("net", 30));
  Train("net", PathOf("net", 10), {30});
  const auto after = Checkpoint::Open(PathOf("net", 30));
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_NE((*after)->manifest().run.lineage.run, (*before)->manifest().run.lineage.run);
  EXPECT_EQ((*after)->manifest().run.lineage.generation, 4);
  EXPECT_EQ((*after)->manifest().run.lineage.parent, "net-1_10.ckpt");
  EXPECT_EQ(Newest(), "net-1_30.ckpt");
}

// From `mslua attach`: .save NAME. The run that resumes from it is the same series.
TEST_F(LineageTest, ANamedCheckpointIsOfTheSeriesThatSavedIt) {
  Train("net", "", {10, 20});
  auto lineage = BeginLineage({folder_}, PathOf("net", 20));
  ASSERT_TRUE(lineage.ok());
  RunState run;
  ++lineage->generation;
  run.lineage = *lineage;
  run.step = 25;
  const float x = 0;
  ASSERT_TRUE(SaveCheckpoint(PathOf("mine", 25), run, {{"x", {DType::kF32, {}}, &x}}).ok());
  EXPECT_EQ(Newest(), "mine-1_25.ckpt");
  Train("net", PathOf("mine", 25), {30});
  EXPECT_EQ(Newest(), "net-1_30.ckpt");
  EXPECT_EQ(runs_.size(), 1u);
}

// As those of a run and its best ones are: the last saved may be in either directory.
TEST_F(LineageTest, TheNewestOfARunIsLookedForInAllItsDirectories) {
  const std::string regular = folder_, best = folder_ + "/best";
  Train("net", "", {10});
  const std::string other = *runs_.begin();
  runs_.clear();
  EXPECT_EQ(NewestOfRun({regular, best}, other), PathOf("net", 10));
  EXPECT_EQ(NewestOfRun({best}, other), "");
  folder_ = best;
  directories_ = {regular, best};
  Train("net", "", {8});
  const std::string mine = *runs_.begin();
  const std::string first_best = PathOf("net", 8);
  EXPECT_EQ(NewestOfRun({regular, best}, mine), first_best);
  EXPECT_EQ(NewestOfRun({regular, best}, other), regular + "/net-1_10.ckpt");
  folder_ = regular;
  Train("net", first_best, {20});
  EXPECT_EQ(NewestOfRun({regular, best}, mine), regular + "/net_1-1_20.ckpt");
  EXPECT_EQ(runs_.size(), 1u);
}

TEST_F(LineageTest, AForkAndTheRunThatItCameFromAreOneFamily) {
  Train("net", "", {10, 20});
  Train("net", PathOf("net", 10), {30});
  EXPECT_EQ(runs_.size(), 2u);
  Train("other", "", {5});
  EXPECT_EQ(NewestOfFamily(folder_, PathOf("net", 10)), PathOf("net", 30));
  EXPECT_EQ(NewestOfFamily(folder_, PathOf("net", 30)), PathOf("net", 30));
  EXPECT_EQ(NewestOfFamily(folder_, PathOf("other", 5)), PathOf("other", 5));
  fs::remove_all(PathOf("net", 30));
  EXPECT_EQ(NewestOfFamily(folder_, PathOf("net", 10)), PathOf("net", 20));
  EXPECT_EQ(NewestOfFamily(folder_, PathOf("net", 30)), "");
  EXPECT_EQ(NewestOfFamily(folder_, ""), "");
  EXPECT_EQ(NewestOfFamily(folder_ + "/best", PathOf("net", 10)), "");
}

TEST_F(LineageTest, ADamagedManifestIsNamed) {
  Train("net", "", {10, 20});
  std::ofstream(PathOf("net", 20) + "/MANIFEST.json") << "{}";
  EXPECT_EQ(Newest(), "net-1_10.ckpt");
  EXPECT_THAT(note_, HasSubstr("net-1_20.ckpt"));
}

TEST_F(LineageTest, TwoProcessesDoNotSaveWithOnePrefix) {
  KeeperOptions options;
  options.directory = folder_;
  options.prefix = "net";
  const auto first = CheckpointKeeper::Create(options, "", 0);
  const auto second = CheckpointKeeper::Create(options, "", 0);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->prefix(), "net");
  EXPECT_EQ(second->prefix(), "net_1");
}

TEST(Lineage, LeadsToByForkAndGeneration) {
  const Lineage to = {"b", 9, "", {{"", 0, 5}, {"a", 4, 40}}};
  EXPECT_TRUE(LeadsTo({"b", 9, "", {}}, 90, to));
  EXPECT_FALSE(LeadsTo({"b", 10, "", {}}, 91, to));
  EXPECT_TRUE(LeadsTo({"a", 4, "", {}}, 40, to));
  EXPECT_FALSE(LeadsTo({"a", 5, "", {}}, 30, to));
  EXPECT_TRUE(LeadsTo({"", 0, "", {}}, 5, to));
  EXPECT_FALSE(LeadsTo({"", 0, "", {}}, 6, to));
  EXPECT_FALSE(LeadsTo({"c", 1, "", {}}, 1, to));
}

}  // namespace
}  // namespace mslua::checkpoint
