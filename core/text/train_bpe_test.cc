#include "core/text/train_bpe.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/text/byte_level.h"
#include "core/text/format.h"
#include "core/text/regex.h"
#include "core/text/tokenizer_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::text {
namespace {

using testing::HasSubstr;

std::string Train(const std::vector<std::string>& texts, int64_t size) {
  BpeTrainer trainer;
  for (const std::string& text : texts) EXPECT_TRUE(trainer.Add(text).ok());
  const auto made = trainer.Train(size, {"<|endoftext|>"});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : "{}";
}

// Byte-pair encoding as its paper has it: count all pairs, join the first of the most frequent ones, again and again.
// All work is on lists of texts.
std::vector<std::pair<std::string, std::string>> Textbook(const std::string& text, size_t merges) {
  std::map<std::string, int> order;  // of tokens, for equal counts
  for (int byte = 0; byte < 256; ++byte) order[ByteToText(static_cast<uint8_t>(byte))] = byte;
  std::vector<std::vector<std::string>> words;
  const auto found = Regex::Compile(kGpt2Pattern)->ForEach(text, [&](size_t begin, size_t end) {
    std::vector<std::string> word;
    for (size_t k = begin; k < end; ++k) word.push_back(ByteToText(static_cast<uint8_t>(text[k])));
    words.push_back(word);
    return absl::OkStatus();
  });
  EXPECT_TRUE(found.ok());
  std::vector<std::pair<std::string, std::string>> joined;
  while (joined.size() < merges) {
    std::map<std::pair<int, int>, int> counts;
    std::map<int, std::string> names;
    for (const auto& [name, id] : order) names[id] = name;
    for (const auto& word : words) {
      for (size_t k = 0; k + 1 < word.size(); ++k) ++counts[{order[word[k]], order[word[k + 1]]}];
    }
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < 2) break;
    const std::string left = names[best->first.first], right = names[best->first.second];
    joined.emplace_back(left, right);
    order.emplace(left + right, 256 + static_cast<int>(joined.size()) - 1);
    for (auto& word : words) {
      std::vector<std::string> shorter;
      for (size_t k = 0; k < word.size(); ++k) {
        const bool pair = k + 1 < word.size() && word[k] == left && word[k + 1] == right;
        shorter.push_back(pair ? left + right : word[k]);
        if (pair) ++k;
      }
      word = shorter;
    }
  }
  return joined;
}

TEST(TrainBpeTest, MergesAreTheTextbooks) {
  const std::string text = *ReadTokenizerFile("core/text/testdata/expected.json");
  const Json json = *ParseJson(Train({text}, 256 + 120 + 1));
  const auto expected = Textbook(text, 120);
  ASSERT_EQ(json["model"]["merges"].size(), expected.size());
  for (size_t k = 0; k < expected.size(); ++k)
    EXPECT_EQ(json["model"]["merges"][k], Json::array({expected[k].first, expected[k].second})) << k;
}

TEST(TrainBpeTest, SameTextsGiveTheSameFileInAnyOrder) {
  EXPECT_EQ(Train({"the cat sat on", "the mat the cat"}, 270), Train({"the mat the cat", "the cat sat on"}, 270));
}

TEST(TrainBpeTest, MadeFileIsRead) {
  const std::string text = "the cat sat on the mat, the cat sat";
  const auto parts = ReadTokenizerJson(Train({text}, 270));
  ASSERT_TRUE(parts.ok()) << parts.status();
  const Json json = *ParseJson(Train({text}, 270));
  EXPECT_LE(json["model"]["vocab"].size(), 270);
  EXPECT_EQ(json["added_tokens"][0]["content"], "<|endoftext|>");
}

TEST(TrainBpeTest, Errors) {
  BpeTrainer trainer;
  EXPECT_THAT(std::string(trainer.Train(300, {}).status().message()), HasSubstr("the text is empty"));
  EXPECT_THAT(std::string(trainer.Add("a\x80").message()), HasSubstr("not UTF-8 at byte 1"));
  ASSERT_TRUE(trainer.Add("text").ok());
  EXPECT_THAT(std::string(trainer.Train(256, {"<a>"}).status().message()), HasSubstr("expected a vocabulary of 257"));
  EXPECT_THAT(std::string(trainer.Train(300, {"<a>", "<a>"}).status().message()), HasSubstr("special tokens"));
}

}  // namespace
}  // namespace mslua::text
