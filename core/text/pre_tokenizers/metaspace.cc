// SentencePiece's: U+2581 in the place of spaces and before the first word, and pieces that begin with it.
#include "core/text/metaspace.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/text/define.h"
#include "core/text/split.h"

namespace mslua::text {
namespace {

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  MetaspacePreTokenizer(Metaspace settings, bool split) : settings_(std::move(settings)), split_(split) {}

  Status Split(Piece piece, PieceSink out) const override {
    const std::string& mark = settings_.replacement;
    std::string text = absl::StrReplaceAll(piece.text, {{" ", mark}});
    const bool prepend = settings_.prepend == Metaspace::Prepend::kAlways ||
                         (settings_.prepend == Metaspace::Prepend::kFirst && piece.first);
    if (prepend && !absl::StartsWith(text, mark)) text = absl::StrCat(mark, text);
    if (!split_) return out({text, piece.first});
    const auto find = [&](absl::string_view in, absl::FunctionRef<Status(size_t, size_t)> found) -> Status {
      for (size_t at = in.find(mark); at != absl::string_view::npos; at = in.find(mark, at + mark.size()))
        RETURN_IF_ERROR(found(at, at + mark.size()));
      return absl::OkStatus();
    };
    return SplitAtMatches({text, piece.first}, find, Behavior::kMergedWithNext, /*invert=*/false, out);
  }

 private:
  const Metaspace settings_;
  const bool split_;
};

}  // namespace

MSLUA_PRE_TOKENIZER(metaspace) {
  return {{"Metaspace"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<PreTokenizer>> {
            Metaspace settings = ReadMetaspace(reader);
            return std::make_unique<MetaspacePreTokenizer>(std::move(settings), reader->Bool("split", true));
          }};
}

}  // namespace mslua::text
