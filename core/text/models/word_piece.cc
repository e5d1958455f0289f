// BERT's: the longest token that begins the rest of the word, again and again.
#include "absl/strings/str_cat.h"
#include "core/text/define.h"
#include "core/text/read_vocabulary.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

class WordPiece : public Model {
 public:
  WordPiece(Vocabulary vocabulary, int32_t unknown, std::string prefix, int64_t most)
      : unknown_(unknown), prefix_(std::move(prefix)), most_(most) {
    vocabulary_ = std::move(vocabulary);
    for (int64_t id = 0; id < vocabulary_.size(); ++id) {
      const std::string* token = vocabulary_.Token(id);
      if (token != nullptr) longest_ = std::max(longest_, token->size());
    }
  }

  Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override {
    int64_t chars = 0;
    for (size_t at = 0; at < piece.size(); at += CharBytes(piece[at])) ++chars;
    const size_t before = ids->size();
    for (size_t at = 0; at < piece.size();) {
      const size_t bytes = chars > most_ ? 0 : Longest(piece.substr(at), at > 0, ids);
      if (bytes == 0) {
        ids->resize(before);
        ids->push_back(unknown_);
        break;
      }
      at += bytes;
    }
    return absl::OkStatus();
  }

 private:
  // Appends the longest token that begins `text`, and gives its bytes; 0: there is none.
  size_t Longest(absl::string_view text, bool inside, std::vector<int32_t>* ids) const {
    std::string token = inside ? prefix_ : "";
    const size_t extra = token.size();
    absl::StrAppend(&token, text.substr(0, longest_));
    while (token.size() > extra) {
      const size_t bytes = token.size() - extra;
      const bool whole = bytes == text.size() || (static_cast<uint8_t>(text[bytes]) & 0xc0) != 0x80;
      const int32_t id = whole ? vocabulary_.Find(token) : -1;
      if (id >= 0) {
        ids->push_back(id);
        return bytes;
      }
      token.pop_back();
    }
    return 0;
  }

  const int32_t unknown_;
  const std::string prefix_;
  const int64_t most_;  // characters of a word; a longer one is unknown
  size_t longest_ = 0;  // bytes of the longest token
};

// Whole words only.
class WordLevel : public Model {
 public:
  WordLevel(Vocabulary vocabulary, int32_t unknown) : unknown_(unknown) { vocabulary_ = std::move(vocabulary); }
  Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override {
    const int32_t id = vocabulary_.Find(piece);
    ids->push_back(id >= 0 ? id : unknown_);
    return absl::OkStatus();
  }

 private:
  const int32_t unknown_;
};

StatusOr<std::unique_ptr<Model>> Read(PartReader* reader) {
  ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(reader));
  const bool words = reader->String("type", "WordPiece") == "WordLevel";
  const std::string unknown = reader->String("unk_token", words ? "<unk>" : "[UNK]");
  const int32_t id = vocabulary.Find(unknown);
  if (id < 0) return reader->Wrong("unk_token", absl::StrCat("the vocabulary has no token ", QuotedToken(unknown)));
  if (words) return std::make_unique<WordLevel>(std::move(vocabulary), id);
  const std::string prefix = reader->String("continuing_subword_prefix", "##");
  return std::make_unique<WordPiece>(std::move(vocabulary), id, prefix, reader->Int("max_input_chars_per_word", 100));
}

}  // namespace

MSLUA_MODEL(word_piece) { return {{"WordPiece", "WordLevel"}, Read}; }

}  // namespace mslua::text
