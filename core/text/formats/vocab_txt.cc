// vocab.txt: BERT's tokens, one a line.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/folder.h"
#include "core/json/json.h"
#include "core/text/config.h"
#include "core/text/format.h"
#include "core/text/tokenizer_json.h"

namespace mslua::text {
namespace {

std::vector<std::string> Find(const std::string& path) {
  const std::string file = absl::EndsWith(path, "vocab.txt") ? path : absl::StrCat(path, "/vocab.txt");
  return IsFile(file) ? std::vector<std::string>{file} : std::vector<std::string>{};
}

StatusOr<TokenizerParts> Read(const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const std::string text, ReadTokenizerFile(files[0]));
  ASSIGN_OR_RETURN(const TokenizerConfig config, ReadConfig(FolderOf(files[0])));
  if (config.tokenizer_class != "BertTokenizer" && !config.tokenizer_class.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("vocab.txt of a ", config.tokenizer_class,
                                                   " is not built; built is that of BertTokenizer. Save its "
                                                   "tokenizer.json"));
  }
  Json vocabulary = Json::object(), added = Json::array();
  int64_t id = 0;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  for (absl::string_view line : lines) {
    if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
    if (vocabulary.contains(std::string(line)))
      return absl::DataLossError(absl::StrCat("line ", id + 1, ": the token ", QuotedToken(line), " is there twice"));
    vocabulary[std::string(line)] = id++;
  }
  for (const char* content : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (!vocabulary.contains(content)) return absl::DataLossError(absl::StrCat("there is no line ", content));
    added.push_back({{"id", vocabulary[content]}, {"content", content}, {"special", true}, {"normalized", false}});
  }
  const Json json = {
      {"added_tokens", added},
      {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", config.lowercase}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "BertProcessing"}, {"cls", {"[CLS]", vocabulary["[CLS]"]}}, {"sep", {"[SEP]", vocabulary["[SEP]"]}}}},
      {"decoder", {{"type", "WordPiece"}}},
      {"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}}};
  ASSIGN_OR_RETURN(TokenizerParts parts, PartsOfJson(json));
  AddTokens(config.added, &parts);
  return parts;
}

}  // namespace

MSLUA_TOKENIZER_FORMAT(vocab_txt) { return {"vocab.txt", 2, Find, Read}; }

}  // namespace mslua::text
