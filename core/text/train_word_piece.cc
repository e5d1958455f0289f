#include "core/text/train_word_piece.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/json/json.h"
#include "core/text/pairs.h"
#include "core/text/parts.h"
#include "core/text/tokenizer_json.h"
#include "core/text/unicode.h"
#include "core/text/vocabulary.h"

namespace mslua::text {
namespace {

constexpr size_t kMostCharacters = 1000;
constexpr const char* kSpecial[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr absl::string_view kInside = "##";

Json NormalizerJson(bool lowercase) {
  return {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", true},
          {"strip_accents", nullptr},
          {"lowercase", lowercase}};
}

Json SplitterJson() { return {{"type", "BertPreTokenizer"}}; }

// A list of the characters of a word, those behind the first with ##.
std::vector<std::string> CharactersOf(absl::string_view word) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < word.size();) {
    const size_t bytes = CharBytes(word[at]);
    characters.push_back(absl::StrCat(at == 0 ? "" : kInside, word.substr(at, bytes)));
    at += bytes;
  }
  return characters;
}

// The most frequent characters, in the order of their bytes.
std::vector<std::string> AlphabetOf(const std::vector<std::pair<std::string, int64_t>>& words) {
  std::map<std::string, int64_t> counts;
  for (const auto& [word, count] : words) {
    for (const std::string& c : CharactersOf(word)) counts[c] += count;
  }
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [c, count] : counts) sorted.emplace_back(-count, c);
  std::sort(sorted.begin(), sorted.end());
  sorted.resize(std::min(sorted.size(), kMostCharacters));
  std::vector<std::string> alphabet;
  for (const auto& [count, c] : sorted) alphabet.push_back(c);
  std::sort(alphabet.begin(), alphabet.end());
  return alphabet;
}

Json TokenizerJson(const Vocabulary& vocabulary, int64_t special, bool lowercase) {
  Json vocab = Json::object(), added = Json::array();
  for (int64_t id = 0; id < vocabulary.size(); ++id) vocab[*vocabulary.Token(id)] = id;
  for (int64_t id = 0; id < special; ++id) added.push_back(SpecialTokenJson(id, *vocabulary.Token(id)));
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", NormalizerJson(lowercase)},
          {"pre_tokenizer", SplitterJson()},
          {"post_processor",
           {{"type", "BertProcessing"},
            {"sep", Json::array({"[SEP]", vocab["[SEP]"]})},
            {"cls", Json::array({"[CLS]", vocab["[CLS]"]})}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", kInside}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", kInside},
            {"max_input_chars_per_word", 100},
            {"vocab", vocab}}}};
}

}  // namespace

Status WordPieceTrainer::Add(absl::string_view text) {
  const size_t wrong = FindInvalidUtf8(text);
  if (wrong != absl::string_view::npos)
    return absl::InvalidArgumentError(absl::StrCat("the text is not UTF-8 at byte ", wrong));
  ASSIGN_OR_RETURN(const auto normalizer, ReadNormalizer(NormalizerJson(lowercase_), "normalizer"));
  ASSIGN_OR_RETURN(const auto split, ReadPreTokenizer(SplitterJson(), "split"));
  std::string normalized(text);
  RETURN_IF_ERROR(normalizer->Apply(&normalized));
  return split->Split({normalized, true}, [&](Piece piece) {
    ++words_[piece.text];
    return absl::OkStatus();
  });
}

StatusOr<std::string> WordPieceTrainer::Train(int64_t vocab_size, const std::vector<std::string>& special) const {
  if (words_.empty()) return absl::InvalidArgumentError("the text is empty");
  std::vector<std::pair<std::string, int64_t>> sorted(words_.begin(), words_.end());
  std::sort(sorted.begin(), sorted.end());
  const std::vector<std::string> alphabet = AlphabetOf(sorted);
  std::vector<std::string> fixed(std::begin(kSpecial), std::end(kSpecial));
  fixed.insert(fixed.end(), special.begin(), special.end());
  const auto specials = static_cast<int64_t>(fixed.size());
  fixed.insert(fixed.end(), alphabet.begin(), alphabet.end());
  const auto least = static_cast<int64_t>(fixed.size());
  if (vocab_size < least || vocab_size > kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("expected a vocabulary of ", least, " (", specials,
                                                   " special tokens and ", alphabet.size(), " characters) to ",
                                                   kMostTokens, ", got ", vocab_size));
  }
  Vocabulary vocabulary;
  for (const std::string& token : fixed) {
    if (FindInvalidUtf8(token) != absl::string_view::npos)
      return absl::InvalidArgumentError("a special token is not UTF-8");
    RETURN_IF_ERROR(Annotate(vocabulary.Add(token, vocabulary.size()), "special tokens"));
  }
  std::vector<Word> words;
  for (const auto& [text, count] : sorted) {
    Word word;
    word.count = count;
    for (const std::string& c : CharactersOf(text)) word.ids.push_back(vocabulary.Find(c));
    // A word with a rare character is unknown as a whole.
    if (std::find(word.ids.begin(), word.ids.end(), -1) == word.ids.end()) words.push_back(std::move(word));
  }
  Pairs pairs(std::move(words));
  Pair best;
  while (vocabulary.size() < vocab_size && pairs.Best(&best)) {
    const std::string joined =
        absl::StrCat(*vocabulary.Token(best.first), vocabulary.Token(best.second)->substr(kInside.size()));
    const auto id = static_cast<int32_t>(vocabulary.size());
    const int32_t known = vocabulary.Find(joined);  // by another pair
    if (known < 0) RETURN_IF_ERROR(vocabulary.Add(joined, id));
    pairs.Join(best, known < 0 ? id : known);
  }
  return TokenizerJson(vocabulary, specials, lowercase_).dump(1) + "\n";
}

}  // namespace mslua::text
