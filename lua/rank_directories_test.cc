// Ranks that save one checkpoint into directories of their own, and resume from them. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/checkpoint/checkpoint.h"
#include "lua/testing/rank_sessions.h"

namespace mslua {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::Numbers;
using testing::RunSessions;

// Trains a layer of two matrix products for some steps; gives the losses.
constexpr char kTraining[] = R"(
  local ms = require "mslua"
  local core, nn, ops = require "mslua.core", ms.nn, ms.ops
  local rank, ranks = core.options.rank, core.options.ranks
  ms.set_auto_parallel_context {parallel_mode = "$MODE", gradients_mean = true}
  local Net = nn.Cell:extend "Net"
  function Net:init()
    self.w1, self.w2 = self:parameter("w1", {16, 24}, "normal"), self:parameter("w2", {24, 8}, "normal")
    self.matmul, self.relu, self.matmul2 = ops.MatMul(), ops.ReLU(), ops.MatMul()
    $NET
  end
  function Net:construct(x) return self.matmul2(self.relu(self.matmul(x, self.w1)), self.w2) end
  local x, y = ms.randn({48, 16}, "float32", "x"), ms.randn({48, 8}, "float32", "y")
  local ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):batch(24 / ranks)
  local net, losses = Net(), {}
  local Recorder = ms.Callback:extend "Recorder"
  function Recorder:on_train_step_end(state)
    losses[#losses + 1] = ("%.9g"):format(state.loss)
    $AT_STEP
  end
  local model = ms.Model(net, {loss_fn = nn.MSELoss(),
    optimizer = nn.Momentum {learning_rate = 0.05, momentum = 0.9}})
  core.options.resume = $RESUME
  model:train(10, ds, {max_steps = $STEPS, callbacks = {Recorder(), ms.ModelCheckpoint {prefix = "net",
    directory = $DIRECTORY, config = ms.CheckpointConfig {save_checkpoint_steps = 2, keep_checkpoint_max = $KEEP}}}})
  return table.concat(losses, " ")
)";

struct Training {
  std::string directory, resume = "nil", mode = "semi_auto_parallel";
  int steps = 4, keep = 5;
  std::string net = "self.matmul:shard {{1, 1}, {1, ranks}} self.matmul2:shard {{1, ranks}, {ranks, 1}}";
  std::string at_step = "";
};

std::vector<std::string> Train(int ranks, const Training& t) {
  return RunSessions(ranks, absl::StrReplaceAll(kTraining, {{"$NET", ranks == 1 ? "" : t.net},
                                                            {"$MODE", ranks == 1 ? "stand_alone" : t.mode},
                                                            {"$RESUME", t.resume},
                                                            {"$KEEP", absl::StrCat(t.keep)},
                                                            {"$STEPS", absl::StrCat(t.steps)},
                                                            {"$AT_STEP", t.at_step},
                                                            {"$DIRECTORY", t.directory}}));
}

class RankDirectories : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  // Lua text of a rank's directory below `parent`.
  std::string OfRank(const std::string& parent) const {
    return absl::StrCat("'", root_, "/", parent, "/rank_' .. rank .. '_ckpt'");
  }
  std::string Place(const std::string& parent, int rank) const {
    return absl::StrCat(root_, "/", parent, "/rank_", rank, "_ckpt");
  }
  // The losses of steps that a run without a stop has.
  std::vector<double> Undisturbed(const Training& t, int ranks, int steps) {
    Training straight = t;
    straight.steps = steps;
    straight.resume = "nil";
    straight.directory = OfRank("undisturbed");
    const auto all = Train(ranks, straight);
    EXPECT_EQ(Numbers(all[0]).size(), static_cast<size_t>(steps)) << all[0];
    return Numbers(all[0]);
  }
  // The steps from `first` (from 0) on are those of the uninterrupted run, bit for bit.
  void ExpectResumes(int ranks, const Training& t, size_t first) {
    const std::vector<double> want = Undisturbed(t, ranks, t.steps);
    for (const std::string& text : Train(ranks, t)) {
      const std::vector<double> got = Numbers(text);
      ASSERT_EQ(got.size(), want.size() - first) << text;
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[first + i]) << "step " << first + i + 1;
    }
  }

  std::string root_;
};

TEST_F(RankDirectories, EachHasTheSlicesOfItsRankAndLoadingFindsTheOthers) {
  const std::string one = absl::StrCat("'", root_, "/one'");
  for (const std::string& text : Train(4, {one})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  for (const std::string& text : Train(4, {OfRank("own")})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  const auto want = checkpoint::LoadCheckpoint(root_ + "/one");
  ASSERT_TRUE(want.ok()) << want.status();
  for (int rank = 0; rank < 4; ++rank) {
    const std::string folder = Place("own", rank) + "/net-2_4.ckpt";
    EXPECT_TRUE(fs::exists(absl::StrCat(folder, "/rank_", rank, ".safetensors"))) << folder;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2) << folder;    // and the manifest
    EXPECT_EQ(std::distance(fs::directory_iterator(Place("own", rank)), {}), 3);  // steps 2 and 4, and the lock
    const auto got = checkpoint::LoadCheckpoint(Place("own", rank));
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ((*got)->manifest().tensors.size(), (*want)->manifest().tensors.size());
    for (const auto& tensor : (*want)->manifest().tensors) {
      std::string a(static_cast<size_t>(tensor.type.bytes()), '\0'), b = a;
      ASSERT_TRUE((*want)->Read(tensor.name, &a[0]).ok());
      ASSERT_TRUE((*got)->Read(tensor.name, &b[0]).ok()) << tensor.name;
      EXPECT_EQ(a, b) << tensor.name;
    }
    EXPECT_TRUE(checkpoint::VerifyCheckpoint(folder).ok());
  }
}

TEST_F(RankDirectories, TrainingResumesFromThem) {
  for (const std::string& text : Train(4, {OfRank("own")})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  ExpectResumes(4, {OfRank("own"), OfRank("own"), "semi_auto_parallel", 8}, 4);
  // Each keeps what it should, and the last is that of step 8.
  const auto last = checkpoint::LoadCheckpoint(Place("own", 3));
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ((*last)->manifest().run.step, 8);
}

TEST_F(RankDirectories, AnotherNumberOfRanksResumesFromThem) {
  for (const std::string& text : Train(4, {OfRank("own")})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  const auto alone = Train(1, {absl::StrCat("'", root_, "/alone'"), absl::StrCat("'", Place("own", 0), "'"), "", 8});
  ASSERT_EQ(Numbers(alone[0]).size(), 4u) << alone[0];
  for (const std::string& text : Train(2, {OfRank("two"), OfRank("own"), "semi_auto_parallel", 8})) {
    ASSERT_EQ(Numbers(text).size(), 4u) << text;
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(Numbers(text)[i] / Numbers(alone[0])[i], 1, 1e-5);
  }
}

// As on hosts without a common disk: a rank sees its own directory alone, and gets the rest from the others.
TEST_F(RankDirectories, RanksGetWhatTheyCannotReadFromRanksThatCan) {
  for (const std::string& text : Train(4, {OfRank("own")})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string to = absl::StrCat(root_, "/moved/host", rank, "/disk/rank_", rank, "_ckpt");
    fs::create_directories(fs::path(to).parent_path());
    fs::rename(Place("own", rank), to);
  }
  const std::string moved = absl::StrCat("'", root_, "/moved/host' .. rank .. '/disk/rank_' .. rank .. '_ckpt'");
  const auto alone = checkpoint::LoadCheckpoint(root_ + "/moved/host0/disk/rank_0_ckpt");
  ASSERT_FALSE(alone.ok());
  EXPECT_THAT(std::string(alone.status().message()),
              HasSubstr("has the parts of some ranks only: rank_1.safetensors was saved in "));
  ExpectResumes(4, {moved, moved, "semi_auto_parallel", 8}, 4);
  // With another sharding each rank needs parts of each file.
  Training other = {OfRank("rows"), moved, "semi_auto_parallel", 10};
  other.net = "self.matmul:shard {{1, ranks}, {ranks, 1}}";
  const auto straight = Train(1, {OfRank("alone"), "nil", "", 10});
  for (const std::string& text : Train(4, other)) {
    ASSERT_EQ(Numbers(text).size(), 2u) << text;
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(Numbers(text)[i] / Numbers(straight[0])[8 + i], 1, 1e-5);
  }
}

TEST_F(RankDirectories, TheNewestStepThatAllHaveIsTaken) {
  for (const std::string& text : Train(4, {OfRank("own")})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  fs::remove_all(Place("own", 2) + "/net-2_4.ckpt");
  ExpectResumes(4, {OfRank("own"), OfRank("own"), "semi_auto_parallel", 6}, 2);
  // Damage counts as well, of whichever rank.
  fs::resize_file(Place("own", 3) + "/net-3_6.ckpt/rank_3.safetensors", 100);
  Training more = {OfRank("own"), OfRank("own"), "semi_auto_parallel", 8};
  for (const std::string& text : Train(4, more)) EXPECT_EQ(Numbers(text).size(), 4u) << text;
}

TEST_F(RankDirectories, WithoutAStepThatAllHaveTheErrorSaysWhatIsMissing) {
  for (const std::string& text : Train(2, {OfRank("own")})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  for (const char* name : {"/net-1_2.ckpt", "/net-2_4.ckpt"}) fs::remove_all(Place("own", 1) + name);
  EXPECT_THAT(Train(2, {OfRank("own"), OfRank("own"), "semi_auto_parallel", 8}),
              Each(HasSubstr("no rank can read rank_1.safetensors, which was saved in ")));
}

// Each rank keeps one whole checkpoint; a kill came between the saves of two ranks.
TEST_F(RankDirectories, DataParallelRanksResumeFromTheirOwnCopies) {
  Training t = {OfRank("own"), "nil", "data_parallel", 4};
  t.net.clear();
  for (const std::string& text : Train(2, t)) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  t.resume = OfRank("own");
  t.steps = 8;
  const std::vector<double> want = Undisturbed(t, 2, 8);
  for (const std::string& text : Train(2, t)) EXPECT_EQ(Numbers(text).size(), 4u) << text;
  for (const char* name : {"/net-1_2.ckpt", "/net-2_4.ckpt", "/net-3_6.ckpt"}) fs::remove_all(Place("own", 0) + name);
  fs::remove_all(Place("own", 1) + "/net-4_8.ckpt");
  t.steps = 10;
  for (const std::string& text : Train(2, t)) EXPECT_EQ(Numbers(text).size(), 2u) << text;
  // A rank that has none takes rank 0's.
  fs::remove_all(Place("own", 1));
  t.steps = 12;
  for (const std::string& text : Train(2, t)) EXPECT_EQ(Numbers(text).size(), 2u) << text;
}

TEST_F(RankDirectories, NothingIsRemovedBeforeAllHaveTheNewOne) {
  Training t = {OfRank("own"), "nil", "semi_auto_parallel", 4};
  t.keep = 1;
  for (const std::string& text : Train(2, t)) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  // After step 5 rank 1 can save no more: a file is where its directory was.
  t.at_step = absl::StrCat("if rank == 1 and #losses == 1 then local d = ", OfRank("own"),
                           " os.rename(d, d .. '_kept') io.open(d, 'w'):close() end");
  t.resume = OfRank("own");
  t.steps = 6;
  EXPECT_THAT(Train(2, t), Each(HasSubstr("trained to step 6, but its checkpoint was not saved")));
  EXPECT_TRUE(fs::exists(Place("own", 0) + "/net-2_4.ckpt/MANIFEST.json"));
  EXPECT_FALSE(fs::exists(Place("own", 0) + "/net-3_6.ckpt"));
}

TEST_F(RankDirectories, RanksThatGiveOneDirectoryByTwoPathsSaveTogether) {
  fs::create_directories(root_ + "/real");
  fs::create_directory_symlink(root_ + "/real", root_ + "/link");
  const std::string paths = absl::StrCat("'", root_, "/' .. (rank == 0 and 'real' or 'link')");
  for (const std::string& text : Train(2, {paths})) ASSERT_EQ(Numbers(text).size(), 4u) << text;
  const auto found = checkpoint::LoadCheckpoint(root_ + "/real");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->manifest().files.size(), 1u);  // integrated
  ExpectResumes(2, {paths, paths, "semi_auto_parallel", 8}, 4);
}

}  // namespace
}  // namespace mslua
