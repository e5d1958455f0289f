// GPT-2's: words with the space before them, as characters of bytes.
#include "core/text/byte_level.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/text/define.h"
#include "core/text/regex.h"
#include "core/text/split.h"

namespace mslua::text {
namespace {

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(Regex words, bool add_prefix_space, bool use_regex)
      : words_(std::move(words)), add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  Status Split(Piece piece, PieceSink out) const override {
    std::string with_space, bytes;
    if (add_prefix_space_ && !absl::StartsWith(piece.text, " ")) {
      with_space = absl::StrCat(" ", piece.text);
      piece.text = with_space;
    }
    const auto give = [&](Piece word) {
      BytesToText(word.text, &bytes);
      return out({bytes, word.first});
    };
    if (!use_regex_) return give(piece);
    const auto find = [this](absl::string_view text, absl::FunctionRef<Status(size_t, size_t)> found) {
      return words_.ForEach(text, found);
    };
    return SplitAtMatches(piece, find, Behavior::kIsolated, /*invert=*/false, give);
  }

 private:
  const Regex words_;
  const bool add_prefix_space_, use_regex_;
};

}  // namespace

MSLUA_PRE_TOKENIZER(byte_level) {
  return {{"ByteLevel"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<PreTokenizer>> {
            reader->Ignore({"trim_offsets"});
            ASSIGN_OR_RETURN(Regex words, Regex::Compile(kGpt2Pattern));
            const bool add_prefix_space = reader->Bool("add_prefix_space", true);
            return std::make_unique<ByteLevel>(std::move(words), add_prefix_space, reader->Bool("use_regex", true));
          }};
}

}  // namespace mslua::text
