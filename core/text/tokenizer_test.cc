#include "core/text/tokenizer.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/base/rng.h"
#include "core/json/json.h"
#include "core/text/format.h"
#include "core/text/tokenizer_json.h"
#include "core/text/unicode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua::text {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Opened = StatusOr<std::shared_ptr<const Tokenizer>>;

std::string Message(const Status& status) { return std::string(status.message()); }

Json TestJson(const std::string& name) {
  return *ParseJson(*ReadTokenizerFile("core/text/testdata/" + name + ".json"));
}

Opened FromJson(const Json& json) {
  auto parts = PartsOfJson(json);
  if (!parts.ok()) return parts.status();
  return Tokenizer::Make(*std::move(parts));
}

std::string Folder(const std::string& name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/tokenizer_test_", name);
  std::filesystem::remove_all(path);
  EXPECT_TRUE(MakeFolders(path).ok());
  return path;
}

void Put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::vector<int32_t> Ids(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(tokenizer.Encode(text, {}, nullptr, &ids).ok()) << text;
  return ids;
}

// What tools/golden/tokenizers.mjs has got of Hugging Face's reader.
TEST(TokenizerTest, IdsAndTextsAreThoseOfAnotherReader) {
  const Json golden = TestJson("expected");
  for (const auto& [name, expected] : golden["expected"].items()) {
    const Opened tokenizer = FromJson(TestJson(name));
    ASSERT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status();
    PieceCache cache;
    for (size_t k = 0; k < expected.size(); ++k) {
      const std::string text = golden["texts"][k];
      std::vector<int32_t> ids;
      ASSERT_TRUE((*tokenizer)->Encode(text, {}, &cache, &ids).ok()) << name << ": " << text;
      EXPECT_EQ(ids, expected[k]["ids"].get<std::vector<int32_t>>()) << name << ": " << text;
      EXPECT_EQ(*(*tokenizer)->Decode(ids, true), expected[k]["text"].get<std::string>()) << name << ": " << text;
    }
  }
}

class Random {
 public:
  explicit Random(uint64_t stream) : stream_(stream) {}
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(UniformIntAt(1, stream_, next_++, bound)); }

 private:
  const uint64_t stream_;
  uint64_t next_ = 0;
};

std::string RandomText(Random* random) {
  static constexpr uint32_t kFirst[] = {0x20,  0x20,   0x61,    0x00,   0xa0,   0x300,
                                        0x600, 0x4e00, 0x1f300, 0x2000, 0xe000, 0x10ffe0};
  std::string text;
  for (uint32_t n = random->Below(24); n > 0; --n) AppendChar(kFirst[random->Below(12)] + random->Below(32), &text);
  return text;
}

TEST(TokenizerTest, DecodeInvertsEncodeOfBytes) {
  for (const char* name : {"gpt2", "llama3"}) {
    const auto tokenizer = *FromJson(TestJson(name));
    Random random(3);
    PieceCache cache;
    for (int k = 0; k < 50000; ++k) {
      const std::string text = RandomText(&random);
      std::vector<int32_t> ids;
      ASSERT_TRUE(tokenizer->Encode(text, {}, &cache, &ids).ok());
      ASSERT_EQ(*tokenizer->Decode(ids, true), text) << k;
    }
  }
}

TEST(TokenizerTest, StreamGivesWholeCharactersAndTheTextOfDecode) {
  for (const char* name : {"gpt2", "llama3", "llama2", "bert", "unigram"}) {
    const auto tokenizer = *FromJson(TestJson(name));
    Random random(5);
    for (int k = 0; k < 300; ++k) {
      std::vector<int32_t> ids;
      for (uint32_t n = random.Below(20); n > 0; --n)
        ids.push_back(static_cast<int32_t>(random.Below(static_cast<uint32_t>(tokenizer->vocab_size()))));
      DecodeStream stream(tokenizer, true);
      std::string all;
      for (const int32_t id : ids) {
        const std::string more = *stream.Push(id);
        ASSERT_EQ(FindInvalidUtf8(more), absl::string_view::npos);
        all += more;
      }
      ASSERT_EQ(all + stream.Finish(), *tokenizer->Decode(ids, true)) << name;
    }
  }
}

TEST(TokenizerTest, StreamWaitsForTheRestOfACharacter) {
  const auto tokenizer = *FromJson(TestJson("gpt2"));
  const std::vector<int32_t> ids = Ids(*tokenizer, "👍");
  ASSERT_EQ(ids.size(), 4);
  DecodeStream stream(tokenizer, true);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(*stream.Push(ids[static_cast<size_t>(k)]), "");
  EXPECT_EQ(*stream.Push(ids[3]), "👍");
  EXPECT_EQ(*stream.Push(ids[0]), "");
  EXPECT_EQ(stream.Finish(), "\ufffd");
}

TEST(TokenizerTest, SpecialTokensInTextAreTextWhereAsked) {
  const auto tokenizer = *FromJson(TestJson("gpt2"));
  const int32_t end = tokenizer->IdOf("<|endoftext|>");
  EXPECT_THAT(Ids(*tokenizer, "<|endoftext|>"), ElementsAre(end));
  std::vector<int32_t> ids;
  EncodeOptions options;
  options.parse_special_tokens = false;
  ASSERT_TRUE(tokenizer->Encode("<|endoftext|>", options, nullptr, &ids).ok());
  EXPECT_GT(ids.size(), 1);
  EXPECT_EQ(*tokenizer->Decode(ids, true), "<|endoftext|>");
  EXPECT_EQ(*tokenizer->Decode({end}, true), "");
  EXPECT_EQ(*tokenizer->Decode({end}, false), "<|endoftext|>");
}

TEST(TokenizerTest, PairsHaveTypes) {
  const auto tokenizer = *FromJson(TestJson("bert"));
  const absl::string_view second = "b";
  const auto encoding = *tokenizer->EncodePair("a", &second, {}, nullptr);
  EXPECT_THAT(encoding.types, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_EQ(encoding.ids.front(), tokenizer->IdOf("[CLS]"));
  EXPECT_EQ(encoding.ids.back(), tokenizer->IdOf("[SEP]"));
}

TEST(TokenizerTest, BadTextAndIds) {
  const auto tokenizer = *FromJson(TestJson("gpt2"));
  std::vector<int32_t> ids;
  EXPECT_THAT(Message(tokenizer->Encode("ab\xff", {}, nullptr, &ids)), HasSubstr("not UTF-8 at byte 2 (0xff)"));
  EXPECT_THAT(Message(tokenizer->Decode({1, 99999}, true).status()),
              HasSubstr(absl::StrCat("ids[2]: expected an id in 0..", tokenizer->vocab_size() - 1, ", got 99999")));
}

TEST(TokenizerTest, PartsThatAreNotBuiltAreNamedWithThoseThatAre) {
  const auto problem = [](const char* key, const Json& part) {
    Json json = TestJson("gpt2");
    json[key] = part;
    return Message(FromJson(json).status());
  };
  EXPECT_THAT(problem("pre_tokenizer", {{"type", "UnicodeScripts"}}),
              AllOf(HasSubstr("pre_tokenizer: the pre-tokenizer 'UnicodeScripts' is not built; built are "),
                    HasSubstr("BertPreTokenizer, ByteLevel, ")));
  EXPECT_THAT(problem("normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}}),
              HasSubstr("normalizer.normalizers[0]: the normalizer 'Nmt' is not built"));
  EXPECT_THAT(problem("decoder", {{"type", "ByteLevel"}, {"speed", 3}}),
              HasSubstr("decoder.speed: this key is not built"));
  EXPECT_THAT(problem("model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}}),
              HasSubstr("model.merges: expected a list of pairs, which is missing"));
  EXPECT_THAT(problem("model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"a b"}}}),
              HasSubstr("model.merges[0]: the vocabulary has no token 'b'"));
  EXPECT_THAT(problem("model", {{"type", "WordPiece"}, {"vocab", {{"a", 0}, {"b", 0}}}, {"unk_token", "a"}}),
              HasSubstr("model.vocab: id 0 is given to two tokens, 'a' and 'b'"));
  EXPECT_THAT(problem("pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Removed"}}),
              HasSubstr("pre_tokenizer.pattern: regular expression '(a': missing closing parenthesis at byte 2"));
  EXPECT_THAT(problem("post_processor", {{"type", "BertProcessing"}, {"cls", {"[CLS]", 9999}}, {"sep", {"[SEP]", 1}}}),
              HasSubstr("post_processor: no token has the id 9999"));
}

// ---- Files

TEST(TokenizerTest, VocabAndMergesGiveTheIdsOfTokenizerJson) {
  const Json json = TestJson("gpt2");
  const std::string path = Folder("vocab_merges");
  Json vocabulary = json["model"]["vocab"];
  vocabulary["<|endoftext|>"] = json["added_tokens"][0]["id"];
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json["model"]["merges"]) absl::StrAppend(&merges, merge.get<std::string>(), "\n");
  Put(path + "/vocab.json", vocabulary.dump());
  Put(path + "/merges.txt", merges);
  const Opened opened = Tokenizer::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto other = *FromJson(json);
  const Json texts = TestJson("expected")["texts"];
  for (const std::string text : texts) EXPECT_EQ(Ids(**opened, text), Ids(*other, text)) << text;
  Put(path + "/tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  EXPECT_THAT(Message(Tokenizer::Open(path).status()), HasSubstr("of a CLIPTokenizer are not built"));
}

TEST(TokenizerTest, VocabTxtGivesTheIdsOfTokenizerJson) {
  const Json json = TestJson("bert");
  const std::string path = Folder("vocab_txt");
  std::vector<std::string> tokens(json["model"]["vocab"].size());
  for (const auto& [token, id] : json["model"]["vocab"].items()) tokens[id.get<size_t>()] = token;
  std::string lines;
  for (const std::string& token : tokens) absl::StrAppend(&lines, token, "\n");
  Put(path + "/vocab.txt", lines);
  const Opened opened = Tokenizer::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto other = *FromJson(json);
  for (const std::string text : {"Hello, world!", "naïve café", "the tokens"})
    EXPECT_EQ(Ids(**opened, text), Ids(*other, text)) << text;
}

// A field of a protocol buffer.
std::string Field(int number, absl::string_view bytes) {
  std::string out{static_cast<char>(number << 3 | 2)};
  for (size_t size = bytes.size(); true; size >>= 7) {
    out.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
    if (size <= 0x7f) break;
  }
  return absl::StrCat(out, bytes);
}
std::string Number(int number, int value) {
  std::string out;
  for (int key = number << 3; true; key >>= 7) {
    out.push_back(static_cast<char>((key & 0x7f) | (key > 0x7f ? 0x80 : 0)));
    if (key <= 0x7f) break;
  }
  out.push_back(static_cast<char>(value));
  return out;
}
std::string Piece(absl::string_view text, float score, int type) {
  std::string number{0x15};
  number.append(reinterpret_cast<const char*>(&score), 4);
  return Field(1, absl::StrCat(Field(1, text), number, Number(3, type)));
}

// BPE (2) or unigram (1), with control tokens and a few pieces.
std::string SentencePiece(int model) {
  std::string proto =
      absl::StrCat(Piece("<unk>", 0, 2), Piece("<s>", 0, 3), Piece("</s>", 0, 3), Piece("\u2581", -9, 1));
  float score = -1;
  for (const char* text : {"\u2581a", "ab", "\u2581ab", "a", "b"}) absl::StrAppend(&proto, Piece(text, score--, 1));
  return absl::StrCat(proto, Field(2, Number(3, model)), Field(3, Number(4, 0)));
}

TEST(TokenizerTest, SentencePieceModels) {
  const std::string path = Folder("sentencepiece");
  for (const int model : {1, 2}) {
    Put(path + "/tokenizer.model", SentencePiece(model));
    const Opened opened = Tokenizer::Open(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    // Highest scores first: "▁a" + "b" is joined before "a" + "b" is; ids: ▁ 3, ▁a 4, ab 5, ▁ab 6, a 7, b 8.
    EXPECT_THAT(Ids(**opened, "ab ab"), ElementsAre(6, 6)) << model;
    EXPECT_THAT(Ids(**opened, "aab"), ElementsAre(4, 5)) << model;
    EXPECT_THAT(Ids(**opened, "axy<s>b"), ElementsAre(4, 0, 1, 8)) << model;
    EXPECT_EQ(*(*opened)->Decode({6, 6}, true), "ab ab");
  }
  Put(path + "/tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  EXPECT_THAT(Ids(**Tokenizer::Open(path), "ab"), ElementsAre(1, 6));
  const std::string whole = SentencePiece(2);
  for (const size_t size : {size_t{1}, size_t{5}, whole.size() - 1}) {
    Put(path + "/tokenizer.model", whole.substr(0, size));
    EXPECT_THAT(Message(Tokenizer::Open(path).status()), HasSubstr("truncated"));
  }
}

TEST(TokenizerTest, TiktokenFileOfAnUnknownSizeIsRefused) {
  const std::string path = Folder("tiktoken");
  Put(path + "/a.tiktoken", "IQ== 0\nIg== 1\n");
  EXPECT_THAT(Message(Tokenizer::Open(path).status()),
              AllOf(HasSubstr("a.tiktoken: it has 2 tokens"), HasSubstr("100256 cl100k_base (GPT-4)")));
  Put(path + "/a.tiktoken", "IQ== 0\nIg==\n");
  EXPECT_THAT(Message(Tokenizer::Open(path).status()), HasSubstr("line 2: expected a token in base64 and its rank"));
}

TEST(TokenizerTest, FoldersWithoutATokenizer) {
  EXPECT_THAT(Message(Tokenizer::Open("/nowhere/at/all").status()), HasSubstr("no folder or file '/nowhere/at/all'"));
  EXPECT_THAT(Message(Tokenizer::Open(Folder("empty")).status()), HasSubstr("holds no tokenizer; expected "));
  const std::string path = Folder("cut");
  Put(path + "/tokenizer.json", TestJson("gpt2").dump().substr(0, 1000));
  EXPECT_THAT(Message(Tokenizer::Open(path).status()), HasSubstr("tokenizer.json: "));
}

// ---- Mutations

// Reads the bytes as a file of this name; what can be read encodes and decodes.
void Try(const std::string& file, const std::string& bytes) {
  Put(file, bytes);
  const Opened opened = Tokenizer::Open(file);
  if (!opened.ok()) {
    ASSERT_FALSE(Message(opened.status()).empty());
    return;
  }
  std::vector<int32_t> ids;
  if (!(*opened)->Encode("Hello, wörld! <s> 12345 \u4e00", {}, nullptr, &ids).ok()) return;
  for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < (*opened)->vocab_size());
  ASSERT_TRUE((*opened)->Decode(ids, false).ok());
}

TEST(TokenizerTest, DamagedFilesAreErrorsOrTokenizers) {
  const std::string path = Folder("damaged");
  Random random(11);
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : {"gpt2", "llama3", "llama2", "bert", "unigram"})
    files.emplace_back(path + "/tokenizer.json", TestJson(name).dump());
  for (const int model : {1, 2}) files.emplace_back(path + "/tokenizer.model", SentencePiece(model));
  for (int k = 0; k < 350; ++k) {
    auto [file, bytes] = files[static_cast<size_t>(k) % files.size()];
    for (uint32_t n = 1 + random.Below(4); n > 0 && !bytes.empty(); --n) {
      const auto at = random.Below(static_cast<uint32_t>(bytes.size()));
      const auto size = 1 + random.Below(8);
      switch (random.Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          bytes.erase(at, size);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random.Below(static_cast<uint32_t>(bytes.size())), size));
          break;
        default:
          if (random.Below(20) == 0) bytes.resize(at);
      }
    }
    Try(file, bytes);
  }
}

}  // namespace
}  // namespace mslua::text
