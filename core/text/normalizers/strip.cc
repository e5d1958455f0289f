// Whitespace at both ends, and accents.
#include "core/text/define.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

class Strip : public Normalizer {
 public:
  explicit Strip(PartReader* reader)
      : left_(reader->Bool("strip_left", true)), right_(reader->Bool("strip_right", true)) {}

  Status Apply(std::string* text) const override {
    size_t begin = text->size(), end = 0;
    for (size_t at = 0; at < text->size();) {
      const size_t here = at;
      if (IsWhitespace(NextChar(*text, &at))) continue;
      begin = std::min(begin, here);
      end = at;
    }
    if (!left_) begin = 0;
    if (!right_) end = text->size();
    *text = begin < end ? text->substr(begin, end - begin) : "";
    return absl::OkStatus();
  }

 private:
  const bool left_, right_;
};

class StripAccents : public Normalizer {
 public:
  Status Apply(std::string* text) const override {
    std::string out;
    for (size_t at = 0; at < text->size();) {
      const uint32_t c = NextChar(*text, &at);
      if (!IsMark(c)) AppendChar(c, &out);
    }
    *text = std::move(out);
    return absl::OkStatus();
  }
};

}  // namespace

MSLUA_NORMALIZER(strip) {
  return {{"Strip", "StripAccents"}, [](PartReader* reader) -> std::unique_ptr<Normalizer> {
            if (reader->String("type") == "StripAccents") return std::make_unique<StripAccents>();
            return std::make_unique<Strip>(reader);
          }};
}

}  // namespace mslua::text
