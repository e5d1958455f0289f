// Replaces a text, or what fits a regular expression; puts a text before the whole.
#include "core/text/define.h"
#include "core/text/pattern.h"

namespace mslua::text {
namespace {

class Replace : public Normalizer {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status Apply(std::string* text) const override {
    std::string out;
    size_t before = 0;
    RETURN_IF_ERROR(pattern_.ForEach(*text, [&](size_t begin, size_t end) {
      out.append(*text, before, begin - before);
      out += content_;
      before = end;
      return absl::OkStatus();
    }));
    out.append(*text, before, std::string::npos);
    *text = std::move(out);
    return absl::OkStatus();
  }

 private:
  const Regex pattern_;
  const std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  Status Apply(std::string* text) const override {
    if (!text->empty()) *text = text_ + *text;
    return absl::OkStatus();
  }

 private:
  const std::string text_;
};

}  // namespace

MSLUA_NORMALIZER(replace) {
  return {{"Replace", "Prepend"}, [](PartReader* reader) -> StatusOr<std::unique_ptr<Normalizer>> {
            if (reader->String("type") == "Prepend") return std::make_unique<Prepend>(reader->String("prepend"));
            ASSIGN_OR_RETURN(Regex pattern, ReadPattern(reader));
            return std::make_unique<Replace>(std::move(pattern), reader->String("content"));
          }};
}

}  // namespace mslua::text
