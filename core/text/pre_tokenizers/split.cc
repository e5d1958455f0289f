#include "core/text/split.h"

#include "core/text/define.h"
#include "core/text/pattern.h"

namespace mslua::text {
namespace {

class SplitAtPattern : public PreTokenizer {
 public:
  SplitAtPattern(Regex pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status Split(Piece piece, PieceSink out) const override {
    const auto find = [this](absl::string_view text, absl::FunctionRef<Status(size_t, size_t)> found) {
      return pattern_.ForEach(text, found);
    };
    return SplitAtMatches(piece, find, behavior_, invert_, out);
  }

 private:
  const Regex pattern_;
  const Behavior behavior_;
  const bool invert_;
};

}  // namespace

MSLUA_PRE_TOKENIZER(split) {
  return {{"Split"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<PreTokenizer>> {
            ASSIGN_OR_RETURN(Regex pattern, ReadPattern(reader));
            const Behavior behavior = ReadBehavior(reader, "");
            return std::make_unique<SplitAtPattern>(std::move(pattern), behavior, reader->Bool("invert", false));
          }};
}

}  // namespace mslua::text
