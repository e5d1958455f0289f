#include "core/checkpoint/checkpoint.h"

#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* base = getenv("TEST_TMPDIR");
    folder_ = std::string(base != nullptr ? base : "/tmp") + "/checkpoint_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::iota(w_.begin(), w_.end(), 0.f);
  }
  std::string At(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<TensorData> Tensors() const {
    return {{"w", {DType::kF32, {4, 6}}, w_.data()}, {"step", {DType::kI64, {}}, &step_}};
  }
  RunState Run() const {
    RunState run;
    run.job = "quickstart";
    run.epoch = 2;
    run.step = 17;
    run.seed = 1;
    run.plan = "{\"conv\": \"16b16a\"}";
    return run;
  }
  int Entries() const { return static_cast<int>(std::distance(fs::directory_iterator(folder_), {})); }

  std::string folder_;
  std::vector<float> w_ = std::vector<float>(24);
  int64_t step_ = 17;
};

void FlipByte(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char c = static_cast<char>(file.get() ^ 0x20);
  file.seekp(at);
  file.put(c);
}

TEST_F(CheckpointTest, WhatIsSavedIsLoaded) {
  const std::string path = CheckpointPath(folder_, "net", 2, 17);
  EXPECT_EQ(path, At("net-2_17.ckpt"));
  for (int time = 0; time < 2; ++time) {
    const Status saved = SaveCheckpoint(path, Run(), Tensors());  // the second replaces the first
    ASSERT_TRUE(saved.ok()) << saved;
    EXPECT_EQ(Entries(), 1);
    EXPECT_TRUE(VerifyCheckpoint(path).ok());
    auto checkpoint = LoadCheckpoint(path + "/");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ((*checkpoint)->manifest().files.size(), 1u);
    EXPECT_EQ((*checkpoint)->manifest().run.job, "quickstart");
    EXPECT_EQ((*checkpoint)->manifest().run.step, 17);
    EXPECT_EQ((*checkpoint)->manifest().run.plan, Run().plan);
    std::vector<float> w(24, -1);
    int64_t step = 0;
    ASSERT_TRUE((*checkpoint)->Read("w", w.data()).ok());
    ASSERT_TRUE((*checkpoint)->Read("step", &step).ok());
    EXPECT_EQ(w, w_);
    EXPECT_EQ(step, 17);
    float block[4] = {};
    ASSERT_TRUE((*checkpoint)->ReadSlice("w", {1, 2}, {3, 4}, block).ok());
    EXPECT_THAT(block, ::testing::ElementsAre(8, 9, 14, 15));

    const Status unknown = (*checkpoint)->Read("stap", &step);
    EXPECT_TRUE(absl::IsNotFound(unknown));
    EXPECT_THAT(unknown.message(), HasSubstr("did you mean 'step'"));
    EXPECT_FALSE((*checkpoint)->ReadSlice("w", {0, 0}, {5, 6}, w.data()).ok());
    EXPECT_FALSE((*checkpoint)->ReadSlice("w", {0}, {4}, w.data()).ok());
    EXPECT_FALSE((*checkpoint)->ReadSlice("w", {2, 0}, {1, 6}, w.data()).ok());
  }
}

TEST_F(CheckpointTest, EveryByteFlipIsDetected) {
  const std::string path = At("net-1_1.ckpt");
  ASSERT_TRUE(SaveCheckpoint(path, Run(), Tensors()).ok());
  for (const char* name : {"MANIFEST.json", "rank_0.safetensors"}) {
    const std::string file = path + "/" + name;
    const int64_t size = static_cast<int64_t>(fs::file_size(file));
    ASSERT_GT(size, 96);
    for (int64_t at = 0; at < size; ++at) {
      FlipByte(file, at);
      for (const VerifyDepth depth : {VerifyDepth::kChunks, VerifyDepth::kOnDisk})
        EXPECT_FALSE(VerifyCheckpoint(path, depth).ok()) << file << " byte " << at;
      FlipByte(file, at);
    }
    ASSERT_TRUE(VerifyCheckpoint(path).ok());
    fs::resize_file(file, static_cast<uintmax_t>(size - 1));
    EXPECT_FALSE(VerifyCheckpoint(path).ok());
    fs::resize_file(file, static_cast<uintmax_t>(size + 1));
    EXPECT_FALSE(VerifyCheckpoint(path).ok());
    ASSERT_TRUE(SaveCheckpoint(path, Run(), Tensors()).ok());
  }
}

TEST_F(CheckpointTest, ReadsCheckTheirChunks) {
  const std::vector<float> big(3 << 18, 1.5f);  // 3 MiB
  const std::string path = At("net-1_1.ckpt");
  const TensorType type{DType::kF32, {3 << 8, 1 << 10}};
  ASSERT_TRUE(SaveCheckpoint(path, Run(), {{"big", type, big.data()}}).ok());
  FlipByte(path + "/rank_0.safetensors", (2 << 20) + 5);
  auto checkpoint = Checkpoint::Open(path);  // reads the header's chunk only
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::vector<float> got(big.size());
  EXPECT_TRUE((*checkpoint)->ReadSlice("big", {0, 0}, {400, 1 << 10}, got.data()).ok());
  EXPECT_TRUE((*checkpoint)->ReadSlice("big", {0, 7}, {400, 9}, got.data()).ok());
  const Status status = (*checkpoint)->Read("big", got.data());
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr("rank_0.safetensors is damaged in the 1 MiB from byte 2097152"));
}

// A 4 x 6 tensor saved by `rows` x `cols` ranks, each a block.
Status SaveBlocks(const std::string& path, const RunState& run, int64_t rows, int64_t cols,
                  const std::vector<float>& w) {
  ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Create(path));
  std::vector<Manifest> parts;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t h = 4 / rows, k = 6 / cols;
      std::vector<float> block;
      for (int64_t i = r * h; i < (r + 1) * h; ++i) {
        for (int64_t j = c * k; j < (c + 1) * k; ++j) block.push_back(w[i * 6 + j]);
      }
      ASSIGN_OR_RETURN(const Manifest part,
                       WritePart(writer->folder(), static_cast<int>(r * cols + c),
                                 {{"w", DType::kF32, block.data(), {{4, 6}, {r * h, c * k}, {h, k}}}}));
      ASSIGN_OR_RETURN(const std::string text, SerializeManifest(part));  // as it travels
      ASSIGN_OR_RETURN(parts.emplace_back(), ParseManifest(text));
    }
  }
  return writer->Commit(run, parts);
}

TEST_F(CheckpointTest, AnyLayoutLoadsInAnyOther) {
  for (int64_t rows : {1, 2, 4}) {
    for (int64_t cols : {1, 2, 3, 6}) {
      const std::string path = At("net-1_1.ckpt");
      const Status saved = SaveBlocks(path, Run(), rows, cols, w_);
      ASSERT_TRUE(saved.ok()) << saved;
      auto checkpoint = LoadCheckpoint(path);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
      for (int64_t i0 = 0; i0 <= 4; ++i0) {
        for (int64_t i1 = i0; i1 <= 4; ++i1) {
          for (int64_t j0 = 0; j0 <= 6; ++j0) {
            for (int64_t j1 = j0; j1 <= 6; ++j1) {
              std::vector<float> got((i1 - i0) * (j1 - j0) + 1, -1), want;
              for (int64_t i = i0; i < i1; ++i) {
                for (int64_t j = j0; j < j1; ++j) want.push_back(w_[i * 6 + j]);
              }
              want.push_back(-1);  // nothing past the end is touched
              ASSERT_TRUE((*checkpoint)->ReadSlice("w", {i0, j0}, {i1, j1}, got.data()).ok());
              ASSERT_EQ(got, want);
            }
          }
        }
      }
      ASSERT_TRUE(MergeCheckpoint(path, At("whole.safetensors")).ok());
      auto whole = LoadCheckpoint(At("whole.safetensors"));
      ASSERT_TRUE(whole.ok()) << whole.status();
      std::vector<float> got(24);
      ASSERT_TRUE((*whole)->Read("w", got.data()).ok());
      EXPECT_EQ(got, w_);
    }
  }
}

TEST_F(CheckpointTest, WhatDoesNotFitTogetherIsNotCommitted) {
  const std::string path = At("net-1_1.ckpt");
  auto writer = CheckpointWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  const DType f32 = DType::kF32;
  auto top = WritePart((*writer)->folder(), 0, {{"w", f32, w_.data(), {{4, 6}, {0, 0}, {2, 6}}}});
  auto middle = WritePart((*writer)->folder(), 1, {{"w", f32, w_.data(), {{4, 6}, {1, 0}, {2, 6}}}});
  auto other = WritePart((*writer)->folder(), 2, {{"w", f32, w_.data(), {{2, 6}, {0, 0}, {2, 6}}}});
  ASSERT_TRUE(top.ok() && middle.ok() && other.ok());
  EXPECT_THAT((*writer)->Commit(Run(), {*top}).message(), HasSubstr("12 of 24"));
  EXPECT_THAT((*writer)->Commit(Run(), {*top, *middle}).message(), HasSubstr("overlap"));
  EXPECT_THAT((*writer)->Commit(Run(), {*top, *top}).message(), HasSubstr("two ranks wrote"));
  EXPECT_THAT((*writer)->Commit(Run(), {*top, *other}).message(), HasSubstr("f32[2,6]"));
  EXPECT_FALSE(WritePart((*writer)->folder(), 3, {{"w", f32, w_.data(), {{4, 6}, {3, 0}, {2, 6}}}}).ok());
  writer->reset();
  EXPECT_EQ(Entries(), 0);
}

TEST_F(CheckpointTest, ARunFolderNamesTheDirectoryOfItsCheckpoints) {
  fs::create_directories(At("run"));
  EXPECT_EQ(CheckpointsOfRun(At("run")), At("run/ckpt"));
  ASSERT_EQ(SaveCheckpoint(CheckpointPath(folder_, "net", 2, 17), Run(), Tensors()), absl::OkStatus());
  std::ofstream(At("run/ckpt_directory")) << "../gone\n..\n/nowhere\n";
  const auto found = FindCheckpoints(At("run"));
  ASSERT_EQ(found.status(), absl::OkStatus());
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ((*LoadCheckpoint(At("run")))->manifest().run.step, 17);
  std::ofstream(At("run/ckpt_directory")) << "../gone\n/nowhere\n";
  EXPECT_THAT(FindCheckpoints(At("run")).status().message(), HasSubstr("there is no directory /nowhere"));
}

TEST_F(CheckpointTest, TheNewestWholeOneIsLoaded) {
  EXPECT_TRUE(absl::IsNotFound(LoadCheckpoint(folder_).status()));
  EXPECT_TRUE(absl::IsNotFound(LoadCheckpoint(At("none")).status()));
  for (int epoch : {2, 10, 9}) {
    RunState run = Run();
    run.epoch = epoch;
    ASSERT_TRUE(SaveCheckpoint(CheckpointPath(folder_, "net", epoch, 5), run, Tensors()).ok());
  }
  fs::create_directories(At("net-99_1.ckpt"));  // no manifest: no checkpoint
  fs::create_directories(At("net-x_1.ckpt"));
  auto checkpoint = LoadCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().run.epoch, 10);
  EXPECT_EQ((*checkpoint)->note(), "");

  fs::create_directories(At("run"));
  fs::create_directory_symlink(folder_, At("run/ckpt"));
  checkpoint = LoadCheckpoint(At("run"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().run.epoch, 10);

  FlipByte(At("net-10_5.ckpt/rank_0.safetensors"), 150);
  checkpoint = LoadCheckpoint(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().run.epoch, 9);
  EXPECT_THAT((*checkpoint)->note(), HasSubstr("net-10_5.ckpt ("));
  EXPECT_THAT((*checkpoint)->note(), HasSubstr("damaged"));

  FlipByte(At("net-9_5.ckpt/MANIFEST.json"), 30);
  fs::remove(At("net-2_5.ckpt/rank_0.safetensors"));
  EXPECT_TRUE(absl::IsDataLoss(LoadCheckpoint(folder_).status()));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOldOne) {
  const std::string path = At("net-1_1.ckpt");
  ASSERT_TRUE(SaveCheckpoint(path, Run(), Tensors()).ok());
  const std::vector<float> big(1 << 20);
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = SaveCheckpoint(path, Run(), {{"big", {DType::kF32, {1 << 20}}, big.data()}});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("rank_0.safetensors"));
  EXPECT_TRUE(VerifyCheckpoint(path).ok());
  EXPECT_EQ(Entries(), 1);
}

TEST_F(CheckpointTest, AnySafetensorsFileIsACheckpoint) {
  ASSERT_TRUE(WriteSafetensors(At("m.safetensors"), Tensors()).ok());
  auto checkpoint = LoadCheckpoint(At("m.safetensors"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_FALSE((*checkpoint)->has_manifest());
  float row[6];
  ASSERT_TRUE((*checkpoint)->ReadSlice("w", {3, 0}, {4, 6}, row).ok());
  EXPECT_EQ(row[5], 23);

  std::ofstream(At("text")) << "hello, this is not a checkpoint";
  const auto bad = LoadCheckpoint(At("text"));
  EXPECT_THAT(bad.status().message(), HasSubstr(At("text")));
  EXPECT_THAT(bad.status().message(), HasSubstr("safetensors"));

  const uint8_t two = 2;
  ASSERT_TRUE(WriteSafetensors(At("b.safetensors"), {{"b", {DType::kBool, {1}}, &two}}).ok());
  checkpoint = LoadCheckpoint(At("b.safetensors"));
  ASSERT_TRUE(checkpoint.ok());
  uint8_t out;
  EXPECT_TRUE(absl::IsDataLoss((*checkpoint)->Read("b", &out)));
}

// What a checkpoint's tensors are, in order.
std::string Bytes(const std::string& path) {
  const auto c = *LoadCheckpoint(path);
  std::vector<float> w(24);
  int64_t step = 0;
  EXPECT_TRUE(c->Read("w", w.data()).ok());
  EXPECT_TRUE(c->Read("step", &step).ok());
  return std::string(reinterpret_cast<const char*>(w.data()), 24 * sizeof(float)) + std::to_string(step) +
         c->manifest().run.plan;
}

TEST_F(CheckpointTest, ReshardedForAnyRanksAndBackNothingChanges) {
  const std::string whole = At("net-2_17.ckpt");
  ASSERT_TRUE(SaveCheckpoint(whole, Run(), Tensors()).ok());
  std::string from = whole;
  for (int64_t ranks : {4, 3, 5, 2, 1}) {  // nothing divides by 5: all is rank 0's
    const std::string to = At("net-2_" + std::to_string(100 + ranks) + ".ckpt");
    ASSERT_TRUE(ReshardCheckpoint(from, to, ranks).ok()) << ReshardCheckpoint(from, to, ranks);
    EXPECT_TRUE(VerifyCheckpoint(to).ok());
    const auto c = *LoadCheckpoint(to);
    EXPECT_EQ(c->manifest().files.size(), static_cast<size_t>(ranks));
    EXPECT_EQ(c->Find("w")->slices.size(), ranks == 5 ? 1u : static_cast<size_t>(ranks));
    EXPECT_EQ(c->manifest().run.world, ranks);
    EXPECT_EQ(Bytes(to), Bytes(whole));
    from = to;
  }
  EXPECT_THAT(ReshardCheckpoint(whole, At("x"), 0).message(), HasSubstr("expected a number of ranks from 1, got 0"));
  ASSERT_TRUE(MergeCheckpoint(whole, At("all.safetensors")).ok());
  EXPECT_THAT(ReshardCheckpoint(At("all.safetensors"), At("x"), 2).message(), HasSubstr("without a run's state"));
}

// What is no checkpoint is the user's: it stays.
TEST_F(CheckpointTest, ReplacesCheckpointsAndEmptyFoldersOnly) {
  const std::string whole = At("net-2_17.ckpt");
  ASSERT_TRUE(SaveCheckpoint(whole, Run(), Tensors()).ok());
  fs::create_directories(At("empty"));
  EXPECT_TRUE(SaveCheckpoint(At("empty"), Run(), Tensors()).ok());
  EXPECT_TRUE(SaveCheckpoint(At("empty/"), Run(), Tensors()).ok());  // a checkpoint now
  std::ofstream(At("empty/MANIFEST.json")) << "damaged";
  std::ofstream(At("empty/tokenizer.json")) << "{}";
  EXPECT_TRUE(SaveCheckpoint(At("empty"), Run(), Tensors()).ok());

  fs::create_directories(At("models"));
  std::ofstream(At("models/model.safetensors")) << "weights";
  std::ofstream(At("file")) << "text";
  for (const Status& saved : {SaveCheckpoint(At("models"), Run(), Tensors()), ReshardCheckpoint(whole, At("models"), 2),
                              CheckpointWriter::Create(At("models")).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(saved)) << saved;
    EXPECT_THAT(saved.message(), HasSubstr("models is a folder without MANIFEST.json, and thus no checkpoint: "));
  }
  EXPECT_THAT(SaveCheckpoint(At("file"), Run(), Tensors()).message(), HasSubstr("file is a file, and a checkpoint is"));
  EXPECT_TRUE(fs::exists(At("models/model.safetensors")) && fs::is_regular_file(At("file")));

  fs::create_directories(whole + "/notes");
  EXPECT_THAT(SaveCheckpoint(whole, Run(), Tensors()).message(),
              HasSubstr("is a folder with notes, which no checkpoint has: "));
  EXPECT_TRUE(fs::exists(whole + "/notes"));
  EXPECT_EQ(Entries(), 4);  // nothing is left beside them
}

TEST_F(CheckpointTest, AFolderWithTheBestOneAloneNamesIt) {
  fs::create_directories(At("ckpt/best"));
  EXPECT_THAT(RunOf(At("ckpt")).status().message(), HasSubstr("name the folder or a .safetensors file"));
  ASSERT_TRUE(SaveCheckpoint(At("ckpt/best/net-2_17.ckpt"), Run(), Tensors()).ok());
  EXPECT_THAT(RunOf(At("ckpt")).status().message(), HasSubstr("ckpt/best has one, of the best evaluation"));
}

TEST_F(CheckpointTest, OutputsAreApartFromWhatIsRead) {
  const std::string whole = At("run/ckpt/net-2_17.ckpt");
  fs::create_directories(At("run/ckpt"));
  ASSERT_TRUE(SaveCheckpoint(whole, Run(), Tensors()).ok());
  const std::string before = Bytes(whole);
  EXPECT_THAT(ReshardCheckpoint(At("run"), At("run"), 2).message(), HasSubstr("run contains what is read, "));
  EXPECT_THAT(ReshardCheckpoint(At("run"), whole + "/", 2).message(), HasSubstr("/ is what is read, "));
  EXPECT_THAT(ReshardCheckpoint(whole, whole + "/new", 2).message(), HasSubstr("/new lies inside what is read, "));
  const Status merged = MergeCheckpoint(At("run"), whole + "/rank_0.safetensors");
  EXPECT_TRUE(absl::IsInvalidArgument(merged)) << merged;
  EXPECT_EQ(Bytes(whole), before);
  EXPECT_TRUE(VerifyCheckpoint(whole).ok());
  EXPECT_TRUE(ReshardCheckpoint(At("run"), At("run/ckpt/net-2_18.ckpt"), 2).ok());
  EXPECT_TRUE(MergeCheckpoint(At("run"), At("run/all.safetensors")).ok());
}

// Parts that ranks wrote are committed as they are, or as one file; the tensors are the same.
TEST_F(CheckpointTest, PartsOfRanksBecomeOneFileOrStay) {
  for (const bool whole : {false, true}) {
    const std::string path = At("net-2_17.ckpt");
    const auto writer = *CheckpointWriter::Create(path);
    std::vector<Manifest> parts;
    for (int r = 0; r < 2; ++r) {
      std::vector<ShardData> shards = {{"w", DType::kF32, w_.data() + 12 * r, {{4, 6}, {2 * r, 0}, {2, 6}}}};
      if (r == 0) shards.push_back({"step", DType::kI64, &step_, {}});
      parts.push_back(*WritePart(writer->folder(), r, shards));
    }
    ASSERT_TRUE((whole ? writer->CommitWhole(Run(), parts) : writer->Commit(Run(), parts)).ok());
    EXPECT_TRUE(VerifyCheckpoint(path).ok());
    EXPECT_EQ((*LoadCheckpoint(path))->manifest().files.size(), whole ? 1u : 2u);
    const std::string found = Bytes(path);
    ASSERT_TRUE(SaveCheckpoint(At("net-2_18.ckpt"), Run(), Tensors()).ok());
    EXPECT_EQ(found, Bytes(At("net-2_18.ckpt")));
  }
  EXPECT_EQ(Entries(), 2);  // nothing is left beside them
}

// A tokenizer's files, say.
TEST_F(CheckpointTest, CompanionsLieInTheFolder) {
  using Files = std::vector<std::pair<std::string, std::string>>;
  const Companions companions =
      std::make_shared<const Files>(Files{{"tokenizer.json", "{}"}, {"vocab.txt", "a\n"}, {"mine.json", "{}"}});
  const auto check = [&](const std::string& path) {
    EXPECT_TRUE(VerifyCheckpoint(path).ok());
    for (const auto& [name, content] : *companions) {
      std::ifstream file(path + "/" + name, std::ios::binary);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), content) << path << " " << name;
    }
  };
  ASSERT_TRUE(SaveCheckpoint(At("net-2_17.ckpt"), Run(), Tensors(), companions).ok());
  check(At("net-2_17.ckpt"));
  const auto writer = *CheckpointWriter::Create(At("net-2_18.ckpt"), companions);
  const std::vector<ShardData> shards = {{"w", DType::kF32, w_.data(), {{4, 6}, {0, 0}, {4, 6}}}};
  ASSERT_TRUE(writer->CommitWhole(Run(), {*WritePart(writer->folder(), 0, shards)}).ok());
  check(At("net-2_18.ckpt"));
  ASSERT_TRUE(ReshardCheckpoint(At("net-2_18.ckpt"), At("net-2_19.ckpt"), 2).ok());
  check(At("net-2_19.ckpt"));
  // Whatever their names are, they are replaced with the checkpoint.
  ASSERT_TRUE(SaveCheckpoint(At("net-2_17.ckpt"), Run(), Tensors(), companions).ok());
  check(At("net-2_17.ckpt"));
  EXPECT_THAT(SaveCheckpoint(At("net-2_17.ckpt"), Run(), Tensors()).message(), HasSubstr("with mine.json, which no"));
}

}  // namespace
}  // namespace mslua::checkpoint
