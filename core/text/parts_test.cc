// Parts that the tokenizers of testdata do not have. Expected values are those of the tokenizers library's
// documentation.
#include "core/text/parts.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/text/charsmap.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Split(const std::string& json, const std::string& text) {
  const auto part = ReadPreTokenizer(*ParseJson(json), "pre_tokenizer");
  EXPECT_TRUE(part.ok()) << part.status();
  std::vector<std::string> pieces;
  const Status status = (*part)->Split({text, true}, [&](Piece piece) {
    pieces.emplace_back(piece.text);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

std::string Normalize(const std::string& json, std::string text) {
  const auto part = ReadNormalizer(*ParseJson(json), "normalizer");
  EXPECT_TRUE(part.ok()) << part.status();
  EXPECT_TRUE((*part)->Apply(&text).ok());
  return text;
}

std::string Decode(const std::string& json, const std::vector<std::string>& tokens) {
  const auto part = ReadDecoder(*ParseJson(json), "decoder");
  EXPECT_TRUE(part.ok()) << part.status();
  const auto run = (*part)->Start();
  std::string text;
  for (const std::string& token : tokens) text += run->Push(token);
  return text + run->Finish();
}

std::string SplitAtDash(const std::string& behavior) {
  return R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior + R"(", "invert": false})";
}

TEST(PartsTest, BehaviorsOfSplits) {
  const std::string text = "the-final--countdown";
  EXPECT_THAT(Split(SplitAtDash("Removed"), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(Split(SplitAtDash("Isolated"), text), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(Split(SplitAtDash("MergedWithPrevious"), text), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(Split(SplitAtDash("MergedWithNext"), text), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(Split(SplitAtDash("Contiguous"), text), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(
      Split(R"({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Removed", "invert": true})", "a, b"),
      ElementsAre("a", "b"));
}

TEST(PartsTest, PreTokenizersOfCharacters) {
  EXPECT_THAT(Split(R"({"type": "Whitespace"})", "Hey man! a_1"), ElementsAre("Hey", "man", "!", "a_1"));
  EXPECT_THAT(Split(R"({"type": "WhitespaceSplit"})", " a b!\tc "), ElementsAre("a", "b!", "c"));
  EXPECT_THAT(Split(R"({"type": "Digits", "individual_digits": true})", "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(Split(R"({"type": "Digits", "individual_digits": false})", "a12b"), ElementsAre("a", "12", "b"));
  EXPECT_THAT(Split(R"({"type": "Punctuation"})", "a?b"), ElementsAre("a", "?", "b"));
  EXPECT_THAT(Split(R"({"type": "CharDelimiterSplit", "delimiter": "x"})", "axbx"), ElementsAre("a", "b"));
  EXPECT_THAT(Split(R"({"type": "Metaspace", "prepend_scheme": "never", "split": false})", "a b"),
              ElementsAre("a\u2581b"));
  EXPECT_THAT(Split(R"({"type": "ByteLevel", "add_prefix_space": true})", "a"), ElementsAre("Ġa"));
}

TEST(PartsTest, EscapesOfPatterns) {
  const auto matches = [](const std::string& pattern, const std::string& text) {
    return Split(R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": ")" + pattern + "\"}}", text);
  };
  // The Mongolian vowel separator is no White_Space, the ideographic space is.
  EXPECT_THAT(matches("\\\\s", "a\u180eb\u3000c"), ElementsAre("a\u180eb", "\u3000", "c"));
  EXPECT_THAT(matches("[^\\\\s\\\\d]+", "a1 b"), ElementsAre("a", "1 ", "b"));
  // Where brackets end.
  EXPECT_THAT(matches("[\\\\[]\\\\w+", "x[ab y"), ElementsAre("x", "[ab", " y"));
  EXPECT_THAT(matches("[^]a]\\\\w", "]xb"), ElementsAre("]", "xb"));
  EXPECT_THAT(matches("[]x]\\\\d", "a]1x2"), ElementsAre("a", "]1", "x2"));
  EXPECT_THAT(std::string(ReadPreTokenizer(*ParseJson(R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex":
                                                          "\\hx"}})"),
                                           "pre_tokenizer")
                              .status()
                              .message()),
              HasSubstr("byte 0: the escape \\h is not built"));
}

TEST(PartsTest, Normalizers) {
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_left": true, "strip_right": false})", " \u3000a "), "a ");
  EXPECT_EQ(Normalize(R"({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]})", "é"), "e");
  EXPECT_EQ(Normalize(R"({"type": "NFKC"})", "ﬁ①"), "fi1");
  EXPECT_EQ(Normalize(R"({"type": "NFC"})", "e\u0301"), "é");
  EXPECT_EQ(Normalize(R"({"type": "Lowercase"})", "ÀİΣ"), "ài\u0307σ");
  EXPECT_EQ(Normalize(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"})", "a   b c"), "a_b c");
  EXPECT_EQ(Normalize(R"({"type": "Replace", "pattern": {"String": "."}, "content": "!"})", "a.b"), "a!b");
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": "x"})", ""), "");
  EXPECT_EQ(Normalize(R"({"type": "ByteLevel"})", " é"), "ĠÃ©");
}

TEST(PartsTest, Decoders) {
  EXPECT_EQ(Decode(R"({"type": "Strip", "content": " ", "start": 1, "stop": 1})", {"  a ", " b"}), " ab");
  const std::string fused = R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, )"
                            R"({"type": "Strip", "content": "_", "start": 2, "stop": 1}]})";
  EXPECT_EQ(Decode(fused, {"_", "_", "_a_", "_b", "_", "_"}), "_a__b_");
  EXPECT_EQ(Decode(fused, {"_", "a", "_b"}), "a_b");
  EXPECT_EQ(Decode(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})", {"do", "n't", "##x", "!", "[y"}),
            "don'tx! [y");
  EXPECT_EQ(Decode(R"({"type": "ByteFallback"})", {"<0x41>", "<0xZZ>"}), "A<0xZZ>");
}

void PutUnit(uint32_t value, size_t place, std::string* units) {
  if (units->size() < 4 * (place + 1)) units->resize(4 * (place + 1));
  for (size_t k = 0; k < 4; ++k) (*units)[4 * place + k] = static_cast<char>(value >> (8 * k));
}

// "A" -> "bc", "AB" -> "d".
std::string SmallCharsmap() {
  std::string units;
  PutUnit(256u << 10, 0, &units);                          // children at 256 ^ byte
  PutUnit('A' | 1u << 8 | 512u << 10, 256 ^ 'A', &units);  // a text ends here; children at 512 ^ ...
  const size_t after = (256 ^ 'A') ^ 512;
  PutUnit(1u << 31 | 0, after, &units);
  PutUnit('B' | 1u << 8 | 1024u << 10, after ^ 'B', &units);
  PutUnit(1u << 31 | 3, (after ^ 'B') ^ 1024, &units);
  std::string blob;
  PutUnit(static_cast<uint32_t>(units.size()), 0, &blob);
  return blob + units + std::string("bc\0d\0", 5);
}

TEST(PartsTest, TablesOfReplacements) {
  const auto map = Charsmap::Read(SmallCharsmap());
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->Find("ABC", /*longest=*/true)->text, "d");
  EXPECT_EQ(map->Find("ABC", /*longest=*/true)->bytes, 2);
  EXPECT_EQ(map->Find("ABC", /*longest=*/false)->text, "bc");
  EXPECT_FALSE(map->Find("B", /*longest=*/true).has_value());
  EXPECT_FALSE(Charsmap::Read(SmallCharsmap().substr(0, 100)).ok());
  const std::string json =
      absl::StrCat(R"({"type": "Precompiled", "precompiled_charsmap": ")", absl::Base64Escape(SmallCharsmap()), "\"}");
  EXPECT_EQ(Normalize(json, "AéBA"), "bcéBbc");
}

}  // namespace
}  // namespace mslua::text
