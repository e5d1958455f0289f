#include "core/checkpoint/async_saver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <vector>

#include "core/checkpoint/keeper.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::checkpoint {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string Folder() {
  const char* base = getenv("TEST_TMPDIR");
  const std::string folder = std::string(base != nullptr ? base : "/tmp") + "/async_saver_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(AsyncSaver, SavesTheValuesOfTheMomentWhileTrainingGoesOn) {
  const std::string folder = Folder();
  KeeperOptions options;
  options.directory = folder;
  options.keep_checkpoint_max = 2;
  auto keeper = CheckpointKeeper::Create(options, "", 0);
  ASSERT_TRUE(keeper.ok());
  std::vector<float> w(3 << 20);
  const uint8_t odd[3] = {1, 2, 3};
  AsyncSaver saver;
  for (int step = 1; step <= 4; ++step) {
    std::fill(w.begin(), w.end(), static_cast<float>(step));
    const std::string path = keeper->PathFor(1, step);
    const Status started =
        saver.Start(path, RunState(), {{"odd", {DType::kU8, {3}}, odd}, {"w", {DType::kF32, {3 << 20}}, w.data()}},
                    [&keeper, path] { return keeper->Saved(path, 0); });
    ASSERT_TRUE(started.ok()) << started;
    std::fill(w.begin(), w.end(), -1.f);  // the next step
    ASSERT_TRUE(saver.Poll().ok());
  }
  ASSERT_TRUE(saver.Wait().ok());
  EXPECT_FALSE(saver.busy());
  const auto names = ListCheckpoints(folder);
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 2u);
  for (const CheckpointName& name : *names) {
    ASSERT_TRUE(VerifyCheckpoint(name.path).ok());
    auto checkpoint = Checkpoint::Open(name.path);
    ASSERT_TRUE(checkpoint.ok());
    ASSERT_TRUE((*checkpoint)->Read("w", w.data()).ok());
    EXPECT_EQ(w, std::vector<float>(w.size(), static_cast<float>(name.step)));
  }
}

TEST(AsyncSaver, ReadsValuesOnItsThread) {
  const std::string folder = Folder(), path = folder + "/net-1_1.ckpt";
  std::vector<float> w(1 << 20, 7.f);
  const uint8_t odd[3] = {1, 2, 3};
  std::promise<void> next_step;
  AsyncSaver saver;
  const std::vector<TensorData> tensors = {{"w", {DType::kF32, {1 << 20}}, nullptr},
                                           {"odd", {DType::kU8, {3}}, nullptr}};
  saver.Start(
      path, RunState(), tensors,
      [&, waits = next_step.get_future().share()](size_t i, void* to) {
        waits.wait();
        if (i == 0)
          std::memcpy(to, w.data(), w.size() * sizeof(float));
        else
          std::memcpy(to, odd, sizeof odd);
        return absl::OkStatus();
      },
      nullptr);
  EXPECT_TRUE(saver.busy());
  EXPECT_FALSE(fs::exists(path));
  next_step.set_value();
  ASSERT_TRUE(saver.Wait().ok());
  ASSERT_TRUE(VerifyCheckpoint(path).ok());
  // The same file as of values in memory.
  const std::string other = folder + "/net-1_2.ckpt";
  const std::vector<TensorData> same = {{"w", tensors[0].type, w.data()}, {"odd", tensors[1].type, odd}};
  ASSERT_TRUE(SaveCheckpoint(other, RunState(), same).ok());
  const auto text = [](const std::string& file) {
    std::ifstream in(file + "/rank_0.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_FALSE(text(path).empty());
  EXPECT_EQ(text(path), text(other));

  saver.Start(
      path, RunState(), tensors, [](size_t, void*) { return absl::UnavailableError("device: no answer"); }, nullptr);
  EXPECT_THAT(std::string(saver.Wait().message()), HasSubstr("device: no answer"));
}

TEST(AsyncSaver, ErrorsComeOnceAtAStepBoundaryAndTheNextSaveWorks) {
  const std::string folder = Folder();
  const float x = 1;
  const std::vector<TensorData> tensors = {{"x", {DType::kF32, {}}, &x}};
  AsyncSaver saver;
  bool kept = false;
  ASSERT_TRUE(saver
                  .Start(folder + "/gone/net-1_1.ckpt", RunState(), tensors,
                         [&kept] {
                           kept = true;
                           return absl::OkStatus();
                         })
                  .ok());
  ASSERT_TRUE(saver.Start(folder + "/net-1_2.ckpt", RunState(), tensors).ok());
  const Status status = saver.Wait();
  EXPECT_FALSE(kept);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr("gone/net-1_1.ckpt was not saved: "));
  EXPECT_TRUE(saver.Poll().ok());
  EXPECT_TRUE(VerifyCheckpoint(folder + "/net-1_2.ckpt").ok());
}

}  // namespace
}  // namespace mslua::checkpoint
