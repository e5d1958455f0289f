#include "core/text/pattern.h"

#include "absl/strings/str_cat.h"

namespace mslua::text {

StatusOr<Regex> ReadPattern(PartReader* reader) {
  const Json& pattern = reader->Object("pattern");
  const bool one = pattern.size() == 1 && pattern.front().is_string();
  const std::string kind = one ? pattern.items().begin().key() : "";
  if (kind != "Regex" && kind != "String") {
    return reader->Wrong("pattern",
                         absl::StrCat(R"(expected {"Regex": "..."} or {"String": "..."}, got )", ShowJson(pattern)));
  }
  const std::string text = pattern.front().get<std::string>();
  if (kind == "String" && text.empty()) return reader->Wrong("pattern", "expected a text, got an empty one");
  StatusOr<Regex> regex = Regex::Compile(kind == "Regex" ? text : QuotedPattern(text));
  if (!regex.ok()) return Annotate(regex.status(), reader->place() + ".pattern");
  return regex;
}

}  // namespace mslua::text
