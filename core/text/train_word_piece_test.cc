#include "core/text/train_word_piece.h"

#include "core/text/tokenizer.h"
#include "core/text/tokenizer_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<const Tokenizer> Train(const std::vector<std::string>& texts, int64_t size, bool lowercase = true) {
  WordPieceTrainer trainer(lowercase);
  for (const std::string& text : texts) EXPECT_TRUE(trainer.Add(text).ok());
  const auto json = trainer.Train(size, {});
  EXPECT_TRUE(json.ok()) << json.status();
  auto parts = ReadTokenizerJson(*json);
  EXPECT_TRUE(parts.ok()) << parts.status();
  return *Tokenizer::Make(*std::move(parts));
}

std::vector<std::string> Tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.Encode(text, {}, nullptr, &ids).ok());
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(*tokenizer.TokenOf(id));
  return tokens;
}

// low 5 times, lower 2, newest 6, widest 3: ##e ##s and ##s ##t are there 9 times, the first has the lower ids; then
// ##es ##t 9 times; then ##o ##w and l ##o 7 times, then l ##ow.
TEST(WordPieceTrainerTest, JoinsTheMostFrequentPairs) {
  std::string text;
  for (const auto& [word, count] : {std::pair{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}}) {
    for (int i = 0; i < count; ++i) text += std::string(word) + " ";
  }
  // 5 special tokens, 11 characters, 4 joined pairs.
  const auto tokenizer = Train({text}, 20);
  ASSERT_EQ(tokenizer->vocab_size(), 20);
  const std::vector<std::string> first = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##d", "##e", "##i",
                                          "##o",   "##r",   "##s",   "##t",   "##w",    "l",   "n",   "w"};
  for (size_t id = 0; id < first.size(); ++id) EXPECT_EQ(*tokenizer->TokenOf(static_cast<int64_t>(id)), first[id]);
  EXPECT_EQ(*tokenizer->TokenOf(16), "##es");
  EXPECT_EQ(*tokenizer->TokenOf(17), "##est");
  EXPECT_EQ(*tokenizer->TokenOf(18), "##ow");
  EXPECT_EQ(*tokenizer->TokenOf(19), "low");
  EXPECT_THAT(Tokens(*tokenizer, "lowest"), ElementsAre("[CLS]", "low", "##est", "[SEP]"));
  EXPECT_THAT(Tokens(*tokenizer, "xylem"), ElementsAre("[CLS]", "[UNK]", "[SEP]"));
}

TEST(WordPieceTrainerTest, TextsInAnyOrderGiveTheSame) {
  const std::vector<std::string> texts = {"Größe, größer: the café isn't open.", "the cat, the café", "open the car"};
  WordPieceTrainer a(true), b(true);
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_TRUE(a.Add(texts[i]).ok());
    ASSERT_TRUE(b.Add(texts[texts.size() - 1 - i]).ok());
  }
  EXPECT_EQ(*a.Train(60, {}), *b.Train(60, {}));
}

TEST(WordPieceTrainerTest, LettersBecomeSmallUnlessCased) {
  const std::string text = "Café Café Café";
  EXPECT_THAT(Tokens(*Train({text}, 40), "CAFE"), ElementsAre("[CLS]", "cafe", "[SEP]"));
  EXPECT_THAT(Tokens(*Train({text}, 40, false), "Café"), ElementsAre("[CLS]", "Café", "[SEP]"));
  EXPECT_THAT(Tokens(*Train({text}, 40, false), "cafe"), ElementsAre("[CLS]", "[UNK]", "[SEP]"));
}

TEST(WordPieceTrainerTest, BadArgumentsHaveOneClearError) {
  WordPieceTrainer trainer(true);
  EXPECT_THAT(trainer.Train(100, {}).status().message(), HasSubstr("the text is empty"));
  EXPECT_THAT(trainer.Add("a\xff").message(), HasSubstr("not UTF-8 at byte 1"));
  ASSERT_TRUE(trainer.Add("abc abc").ok());
  EXPECT_THAT(trainer.Train(7, {}).status().message(),
              HasSubstr("expected a vocabulary of 8 (5 special tokens and 3 characters) to"));
  EXPECT_THAT(trainer.Train(100, {"[CLS]"}).status().message(), HasSubstr("special tokens"));
}

}  // namespace
}  // namespace mslua::text
