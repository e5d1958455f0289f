// BERT's: control characters away, spaces around ideographs, accents away, lower case.
#include "core/text/define.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

std::string Cleaned(absl::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextChar(text, &at);
    if (c == 0 || c == 0xfffd || IsControl(c)) continue;
    AppendChar(IsWhitespace(c) ? ' ' : c, &out);
  }
  return out;
}

std::string WithSpacesAroundChinese(absl::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextChar(text, &at);
    const bool chinese = IsChinese(c);
    if (chinese) out.push_back(' ');
    AppendChar(c, &out);
    if (chinese) out.push_back(' ');
  }
  return out;
}

std::string WithoutAccents(absl::string_view text) {
  const std::string parts = Normalized(text, NormalForm::kNfd);
  std::string out;
  for (size_t at = 0; at < parts.size();) {
    const uint32_t c = NextChar(parts, &at);
    if (!IsNonspacingMark(c)) AppendChar(c, &out);
  }
  return out;
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(PartReader* reader)
      : clean_(reader->Bool("clean_text", true)),
        chinese_(reader->Bool("handle_chinese_chars", true)),
        lowercase_(reader->Bool("lowercase", true)),
        strip_accents_(reader->Bool("strip_accents", lowercase_)) {}

  Status Apply(std::string* text) const override {
    if (clean_) *text = Cleaned(*text);
    if (chinese_) *text = WithSpacesAroundChinese(*text);
    if (strip_accents_) *text = WithoutAccents(*text);
    if (lowercase_) *text = ToLower(*text);
    return absl::OkStatus();
  }

 private:
  const bool clean_, chinese_, lowercase_, strip_accents_;
};

}  // namespace

MSLUA_NORMALIZER(bert) {
  return {{"BertNormalizer"}, [](PartReader* reader) { return std::make_unique<BertNormalizer>(reader); }};
}

}  // namespace mslua::text
