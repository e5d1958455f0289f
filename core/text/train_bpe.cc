#include "core/text/train_bpe.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/json/json.h"
#include "core/text/byte_level.h"
#include "core/text/pairs.h"
#include "core/text/parts.h"
#include "core/text/tokenizer_json.h"
#include "core/text/unicode.h"
#include "core/text/vocabulary.h"

namespace mslua::text {
namespace {

const Json& Splitter() {
  static const auto* const json =
      new Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return *json;
}

Json TokenizerJson(const Vocabulary& vocabulary, Json merges, const std::vector<std::string>& special) {
  Json vocab = Json::object(), added = Json::array();
  for (int64_t id = 0; id < vocabulary.size(); ++id) vocab[*vocabulary.Token(id)] = id;
  for (const std::string& token : special) added.push_back(SpecialTokenJson(vocab[token], token));
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", Splitter()},
          {"post_processor", nullptr},
          {"decoder", Splitter()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", std::move(merges)}}}};
}

}  // namespace

Status BpeTrainer::Add(absl::string_view text) {
  const size_t wrong = FindInvalidUtf8(text);
  if (wrong != absl::string_view::npos)
    return absl::InvalidArgumentError(absl::StrCat("the text is not UTF-8 at byte ", wrong));
  static const auto* const split = new StatusOr<std::unique_ptr<PreTokenizer>>(ReadPreTokenizer(Splitter(), "split"));
  RETURN_IF_ERROR(split->status());
  return (**split)->Split({text, true}, [&](Piece piece) {
    ++words_[piece.text];
    return absl::OkStatus();
  });
}

StatusOr<std::string> BpeTrainer::Train(int64_t vocab_size, const std::vector<std::string>& special) const {
  const auto least = static_cast<int64_t>(256 + special.size());
  if (vocab_size < least || vocab_size > kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("expected a vocabulary of ", least, " (256 bytes and ",
                                                   special.size(), " special tokens) to ", kMostTokens, ", got ",
                                                   vocab_size));
  }
  if (words_.empty()) return absl::InvalidArgumentError("the text is empty");
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) RETURN_IF_ERROR(vocabulary.Add(ByteToText(static_cast<uint8_t>(byte)), byte));
  std::vector<std::pair<absl::string_view, int64_t>> sorted(words_.begin(), words_.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  for (const auto& [text, count] : sorted) {
    Word word;
    word.count = count;
    for (size_t at = 0; at < text.size(); at += CharBytes(text[at]))
      word.ids.push_back(vocabulary.Find(text.substr(at, CharBytes(text[at]))));
    words.push_back(std::move(word));
  }
  Pairs pairs(std::move(words));
  Json merges = Json::array();
  Pair best;
  while (vocabulary.size() + static_cast<int64_t>(special.size()) < vocab_size && pairs.Best(&best)) {
    const std::string left = *vocabulary.Token(best.first), right = *vocabulary.Token(best.second);
    const auto id = static_cast<int32_t>(vocabulary.size());
    const int32_t known = vocabulary.Find(left + right);  // by another pair
    if (known < 0) RETURN_IF_ERROR(vocabulary.Add(left + right, id));
    merges.push_back(Json::array({left, right}));
    pairs.Join(best, known < 0 ? id : known);
  }
  for (const std::string& token : special) {
    if (FindInvalidUtf8(token) != absl::string_view::npos)
      return absl::InvalidArgumentError("a special token is not UTF-8");
    RETURN_IF_ERROR(Annotate(vocabulary.Add(token, vocabulary.size()), "special tokens"));
  }
  return TokenizerJson(vocabulary, std::move(merges), special).dump(1) + "\n";
}

}  // namespace mslua::text
