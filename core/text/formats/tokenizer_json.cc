// tokenizer.json of the tokenizers library.
#include "core/text/tokenizer_json.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/text/format.h"

namespace mslua::text {
namespace {

std::vector<std::string> Find(const std::string& path) {
  const std::string file = absl::EndsWith(path, ".json") ? path : absl::StrCat(path, "/tokenizer.json");
  const bool other = absl::EndsWith(path, "vocab.json");
  return IsFile(file) && !other ? std::vector<std::string>{file} : std::vector<std::string>{};
}

StatusOr<TokenizerParts> Read(const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const std::string text, ReadTokenizerFile(files[0]));
  return ReadTokenizerJson(text);
}

}  // namespace

MSLUA_TOKENIZER_FORMAT(tokenizer_json) { return {"tokenizer.json", 0, Find, Read}; }

}  // namespace mslua::text
