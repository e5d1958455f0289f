// Those that look at single characters: whitespace, punctuation, digits, a delimiter.
#include "core/text/define.h"
#include "core/text/split.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

class AtChars : public PreTokenizer {
 public:
  AtChars(bool (*is)(uint32_t), Behavior behavior) : is_(is), behavior_(behavior) {}
  Status Split(Piece piece, PieceSink out) const override { return SplitAtChars(piece, is_, behavior_, out); }

 private:
  bool (*const is_)(uint32_t);
  const Behavior behavior_;
};

// Words and runs of other characters, without whitespace: \w+|[^\w\s]+
class Whitespace : public PreTokenizer {
 public:
  Status Split(Piece piece, PieceSink out) const override {
    return SplitAtChars(piece, IsWhitespace, Behavior::kRemoved,
                        [&](Piece part) { return SplitAtChars(part, IsWord, Behavior::kContiguous, out); });
  }
};

class Bert : public PreTokenizer {
 public:
  Status Split(Piece piece, PieceSink out) const override {
    return SplitAtChars(piece, IsWhitespace, Behavior::kRemoved,
                        [&](Piece part) { return SplitAtChars(part, IsPunctuation, Behavior::kIsolated, out); });
  }
};

class Delimiter : public PreTokenizer {
 public:
  explicit Delimiter(std::string delimiter) : delimiter_(std::move(delimiter)) {}
  Status Split(Piece piece, PieceSink out) const override {
    const auto find = [this](absl::string_view text, absl::FunctionRef<Status(size_t, size_t)> found) -> Status {
      size_t at = text.find(delimiter_);
      while (at != absl::string_view::npos) {
        const size_t end = at + delimiter_.size();
        RETURN_IF_ERROR(found(at, end));
        at = text.find(delimiter_, end);
      }
      return absl::OkStatus();
    };
    return SplitAtMatches(piece, find, Behavior::kRemoved, /*invert=*/false, out);
  }

 private:
  const std::string delimiter_;
};

StatusOr<std::unique_ptr<PreTokenizer>> Read(PartReader* reader) {
  const std::string type = reader->String("type");
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<AtChars>(IsWhitespace, Behavior::kRemoved);
  if (type == "BertPreTokenizer") return std::make_unique<Bert>();
  if (type == "Punctuation") return std::make_unique<AtChars>(IsPunctuation, ReadBehavior(reader, "Isolated"));
  if (type == "Digits") {
    const bool single = reader->Bool("individual_digits", false);
    return std::make_unique<AtChars>(IsNumeric, single ? Behavior::kIsolated : Behavior::kContiguous);
  }
  const std::string delimiter = reader->String("delimiter");
  if (delimiter.empty()) return reader->Wrong("delimiter", "expected a character, got an empty text");
  return std::make_unique<Delimiter>(delimiter);
}

}  // namespace

MSLUA_PRE_TOKENIZER(chars) {
  return {{"Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Punctuation", "Digits", "CharDelimiterSplit"}, Read};
}

}  // namespace mslua::text
