#include "train/run_settings.h"

#include <sys/stat.h>

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/input_file.h"

namespace mslua {
namespace {

constexpr absl::string_view kBegin = "require(\"mslua.params\").resolved ";
constexpr int kDeepest = 32;
constexpr int64_t kLargestConfig = 64 << 20;

// A reader of the values that literal.lua writes.
class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}

  // Reads `{key = value, ...}` and adds each number, string and boolean by its path ("params.lr"; of lists
  // "params.sizes.1").
  bool Table(const std::string& path, int depth, std::map<std::string, std::string>* values) {
    if (depth > kDeepest || !Take("{")) return false;
    for (int64_t i = 1; !Take("}"); ++i) {
      std::string key;
      if (!Key(&key)) key = absl::StrCat(i);
      if (!Value(path.empty() ? key : absl::StrCat(path, ".", key), depth, values)) return false;
      if (!Take(",") && !Peek('}')) return false;
    }
    return true;
  }
  size_t at() const { return at_; }

 private:
  void Spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Peek(char c) {
    Spaces();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool Take(absl::string_view word) {
    Spaces();
    if (!absl::StartsWith(text_.substr(at_), word)) return false;
    at_ += word.size();
    return true;
  }
  // `name =` or `["name"] =`; moves on only where there is one.
  bool Key(std::string* key) {
    const size_t begin = at_;
    if (Take("[")) {
      if (String(key) && Take("]") && Take("=")) return true;
    } else {
      Spaces();
      size_t end = at_;
      while (end < text_.size() && (absl::ascii_isalnum(text_[end]) || text_[end] == '_')) ++end;
      *key = std::string(text_.substr(at_, end - at_));
      at_ = end;
      if (!key->empty() && Take("=")) return true;
    }
    at_ = begin;
    return false;
  }
  // A string as %q writes it, without its escapes.
  bool String(std::string* value) {
    if (!Take("\"")) return false;
    value->clear();
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        value->push_back(text_[at_++]);
      } else if (++at_ < text_.size()) {
        if (!absl::ascii_isdigit(text_[at_])) {
          const char c = text_[at_++];
          value->push_back(c == 'n' ? '\n' : c == 'r' ? '\r' : c);
          continue;
        }
        int code = 0;
        for (int i = 0; i < 3 && at_ < text_.size() && absl::ascii_isdigit(text_[at_]); ++i)
          code = 10 * code + (text_[at_++] - '0');
        value->push_back(static_cast<char>(code));
      }
    }
    return Take("\"");
  }
  bool Value(const std::string& path, int depth, std::map<std::string, std::string>* values) {
    Spaces();
    const size_t begin = at_;
    if (Peek('{')) return Table(path, depth + 1, values);
    std::string text;
    if (Peek('"')) {
      if (!String(&text)) return false;
      (*values)[path] = text;
      return true;
    }
    while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) || absl::StrContains("+-./", text_[at_]))) ++at_;
    if (at_ == begin) return false;
    (*values)[path] = std::string(text_.substr(begin, at_ - begin));
    return true;
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

StatusOr<RunSettings> ParseRunSettings(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, kBegin))
    return absl::DataLossError(absl::StrCat("expected `", kBegin, "{...}` in line 1, as a training writes it"));
  Reader reader(text);
  std::map<std::string, std::string> all;
  if (!reader.Table("", 0, &all)) {
    return absl::DataLossError(absl::StrCat("line 1, column ", kBegin.size() + reader.at() + 1,
                                            ": expected a table of numbers, strings and booleans"));
  }
  RunSettings settings;
  settings.recipe = std::string(text.substr(reader.at()));
  for (const auto& [path, value] : all) {
    absl::string_view name = path;
    if (name == "from")
      settings.from = value;
    else if (name == "name")
      settings.name = value;
    else if (absl::ConsumePrefix(&name, "params.") || absl::ConsumePrefix(&name, "leaves."))
      settings.values[std::string(name)] = value;
    else if (absl::ConsumePrefix(&name, "origins."))
      settings.origins[std::string(name)] = value;
  }
  return settings;
}

StatusOr<RunSettings> ReadRunSettings(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kRunConfig);
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::NotFoundError(absl::StrCat(folder, " has no ", kRunConfig));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestConfig));
  auto settings = ParseRunSettings(text);
  if (!settings.ok()) return absl::DataLossError(absl::StrCat(path, ": ", settings.status().message()));
  return settings;
}

}  // namespace mslua
