#include "verbs/support/run_record.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "train/run_settings.h"
#include "verbs/support/run_summary.h"
#include "verbs/support/text_table.h"

namespace mslua {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kRecord[] =
    "{\"step\":1,\"epoch\":1,\"loss\":2.5}\n{\"step\":2,\"epoch\":1,\"loss\":null}\n"
    "{\"step\":2,\"epoch\":1,\"eval_loss\":0.5,\"eval_top1\":0.25}\n";
constexpr char kSettings[] =
    "require(\"mslua.params\").resolved {from = \"a/b.lua\", leaves = {seed = 1, [\"train.epochs\"] = 3}, "
    "name = \"b\", params = {[\"if\"] = true, lr = 1e-3, name = \"a\\\"}, \\7b\", sizes = {1, -2}, top = math.huge}} "
    "local ms = 1\n";

TEST(RunRecord, HasTheNumbersOfEachKeyByStep) {
  const RunRecord record = ParseRunRecord("runs/a", kRecord);
  EXPECT_THAT(record.Keys(), ElementsAre("eval_loss", "eval_top1", "loss"));
  EXPECT_THAT(record.values.at("loss"), ElementsAre(Pair(1, 2.5)));
  EXPECT_EQ(record.undefined.at("loss"), 1);
  EXPECT_FALSE(record.half_written);
}

TEST(RunRecord, LeavesOutAHalfWrittenLastLineAndCountsBrokenOnes) {
  const RunRecord record = ParseRunRecord("runs/a", std::string("{\"st\n[1]\n") + kRecord + "{\"step\":3,\"lo");
  EXPECT_EQ(record.broken, 2);
  EXPECT_TRUE(record.half_written);
  EXPECT_THAT(record.values.at("loss"), ElementsAre(Pair(1, 2.5)));
}

TEST(RunRecord, ReadsAWholeLastLineWithoutALineFeed) {
  EXPECT_THAT(ParseRunRecord("a", "{\"step\":3,\"loss\":1}").values.at("loss"), ElementsAre(Pair(3, 1)));
}

TEST(RunRecord, AFolderWithoutMetricsIsOneClearError) {
  EXPECT_THAT(ReadRunRecord("/nowhere").status().message(), HasSubstr("/nowhere has no metrics.jsonl"));
}

TEST(RunSettings, HasParametersAndFields) {
  const auto settings = ParseRunSettings(kSettings);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->from, "a/b.lua");
  EXPECT_EQ(settings->name, "b");
  EXPECT_THAT(settings->values, ElementsAre(Pair("if", "true"), Pair("lr", "1e-3"), Pair("name", "a\"}, \7b"),
                                            Pair("seed", "1"), Pair("sizes.1", "1"), Pair("sizes.2", "-2"),
                                            Pair("top", "math.huge"), Pair("train.epochs", "3")));
}

TEST(RunSettings, RefusesOtherText) {
  for (const char* text : {"", "return 1", "require(\"mslua.params\").resolved {from = f()}",
                           "require(\"mslua.params\").resolved {from = \"a"})
    EXPECT_TRUE(absl::IsDataLoss(ParseRunSettings(text).status())) << text;
}

TEST(RunSettings, RefusesDeepNesting) {
  EXPECT_FALSE(ParseRunSettings("require(\"mslua.params\").resolved " + std::string(1 << 20, '{')).ok());
}

TEST(RunRecord, TakesAnyBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string record = kRecord, settings = kSettings;
    for (std::string* text : {&record, &settings}) {
      for (int edit = 0; edit < 4; ++edit) {
        const size_t at = random() % text->size();
        if (random() % 3 == 0)
          text->erase(at, random() % 20);
        else
          (*text)[at] = static_cast<char>(random());
        if (text->empty()) *text = "{";
      }
    }
    ParseRunRecord("a", record);
    ParseRunSettings(settings).status().IgnoreError();
  }
}

TEST(RunSummary, JudgesByTheShareElseByTheLoss) {
  bool more = false;
  EXPECT_EQ(BestKey(ParseRunRecord("a", kRecord), &more), "eval_top1");
  EXPECT_TRUE(more);
  EXPECT_EQ(BestKey(ParseRunRecord("a", "{\"step\":1,\"eval_loss\":1,\"eval_a\":2}"), &more), "eval_loss");
  EXPECT_FALSE(more);
  EXPECT_EQ(BestKey(ParseRunRecord("a", "{\"step\":1,\"loss\":1}"), &more), "");
  EXPECT_EQ(BestKey(ParseRunRecord("a", "{\"step\":1,\"eval_f1\":1}"), &more), "eval_f1");
  EXPECT_TRUE(more);
  EXPECT_EQ(BestKey(ParseRunRecord("a", "{\"step\":1,\"eval_mae\":1}"), &more), "eval_mae");
  EXPECT_FALSE(more);
}

TEST(TextTable, AlignsColumnsAndReplacesControlCharacters) {
  TextTable table({"run", "x"});
  table.Add({"a\x1b[1m\n", "12"});
  EXPECT_EQ(table.Text(), "run     x\na?[1m   12\n");
}

}  // namespace
}  // namespace mslua
