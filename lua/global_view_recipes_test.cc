// Recipes of the library in global view, ranks as threads: the losses of one process with the same global batch.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/data/stand_in.h"
#include "lua/testing/rank_sessions.h"

namespace mslua {
namespace {

struct Recipe {
  const char* name;
  int batch;  // of the whole
  std::vector<std::pair<std::string, std::string>> overrides;
};

// The losses of three steps, as rank 0 logs them; the errors of the ranks when there are none.
std::vector<double> Losses(const Recipe& recipe, int ranks, const std::string& mode, const std::string& data) {
  const std::string out = absl::StrCat(::testing::TempDir(), "/", recipe.name, "_", mode, "_", ranks);
  std::filesystem::remove_all(out);
  const auto results =
      testing::RunSessions(ranks, "return require('mslua.verbs').train()", "train", [&](SessionOptions& options) {
        options.file = recipe.name;
        options.preset = "smoke";
        options.flags = {{"out", out}, {"max_steps", 3.0}};
        options.overrides = recipe.overrides;
        options.overrides.emplace_back("data_path", data);
        options.overrides.emplace_back("batch_size", absl::StrCat(recipe.batch / ranks));
        options.overrides.emplace_back("train.max_steps", "3");
        options.overrides.emplace_back("parallel.parallel_mode", mode);
        options.overrides.emplace_back("parallel.search_mode", "sharding_propagation");
      });
  std::vector<double> losses;
  std::ifstream log(out + "/rank_0.log");
  for (std::string line; std::getline(log, line);) {
    double loss;
    if (std::sscanf(line.c_str(), "epoch: %*d step: %*d, loss is %lf", &loss) == 1) losses.push_back(loss);
  }
  EXPECT_EQ(losses.size(), 3u) << recipe.name << " " << mode << " on " << ranks << ": " << results[0];
  return losses;
}

void ExpectLawHolds(const Recipe& recipe, const std::string& data) {
  const std::vector<double> want = Losses(recipe, 1, "stand_alone", data);
  for (const char* mode : {"semi_auto_parallel", "auto_parallel"}) {
    for (int ranks : {2, 4}) {
      const std::vector<double> got = Losses(recipe, ranks, mode, data);
      ASSERT_EQ(got.size(), want.size());
      EXPECT_NEAR(got[0] / want[0], 1, 1e-5) << mode << " on " << ranks;
      for (size_t i = 1; i < want.size(); ++i) EXPECT_NEAR(got[i] / want[i], 1, 1e-3) << mode << " on " << ranks;
    }
  }
}

data::MakeOptions Small() {
  data::MakeOptions options;
  options.train = 200;
  options.test = 50;
  return options;
}

TEST(GlobalViewRecipes, CharGptWithDropout) {
  const std::string data = ::testing::TempDir() + "/text";
  data::MakeOptions options = Small();
  options.train = 4000;
  ASSERT_TRUE(data::MakeStandIn("text", data, options).ok());
  ExpectLawHolds({"char_gpt", 12, {{"dropout", "0.1"}}}, data);
}

// Batch statistics are those of the global batch.
TEST(GlobalViewRecipes, ResNet18) {
  const std::string data = ::testing::TempDir() + "/cifar10";
  ASSERT_TRUE(data::MakeStandIn("cifar10", data, Small()).ok());
  ExpectLawHolds({"resnet18_cifar10", 16, {{"width", "4"}}}, data);
}

}  // namespace
}  // namespace mslua
