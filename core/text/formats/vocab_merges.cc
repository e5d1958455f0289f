// vocab.json and merges.txt, as GPT-2 and RoBERTa have them.
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
  const std::string folder = absl::EndsWith(path, "vocab.json") ? FolderOf(path) : path;
  std::vector<std::string> files{absl::StrCat(folder, "/vocab.json"), absl::StrCat(folder, "/merges.txt")};
  if (!IsFile(files[0]) || !IsFile(files[1])) files.clear();
  return files;
}

Json MergesOf(const std::string& text) {
  Json merges = Json::array();
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
    if (!line.empty() && !absl::StartsWith(line, "#version")) merges.push_back(std::string(line));
  }
  return merges;
}

// The special tokens of the vocabulary: those of the configuration, else GPT-2's.
Json AddedTokens(const Json& vocabulary, const TokenizerConfig& config) {
  std::map<std::string, std::string> contents = config.roles;
  if (contents.empty()) contents["eos"] = "<|endoftext|>";
  Json added = Json::array();
  for (const auto& [role, content] : contents) {
    const Json token = {{"id", vocabulary.value(content, Json())},
                        {"content", content},
                        {"special", true},
                        {"lstrip", role == "mask"},
                        {"normalized", false}};
    bool known = false;
    for (const Json& other : added) known = known || other["content"] == content;
    if (vocabulary.contains(content) && !known) added.push_back(token);
  }
  return added;
}

StatusOr<TokenizerParts> Read(const std::vector<std::string>& files) {
  JsonLimits limits;
  limits.bytes = kLargestTokenizerFile;
  ASSIGN_OR_RETURN(const std::string text, ReadTokenizerFile(files[0]));
  ASSIGN_OR_RETURN(const std::string merges, ReadTokenizerFile(files[1]));
  ASSIGN_OR_RETURN(const Json vocabulary, ParseJson(text, limits));
  if (!vocabulary.is_object())
    return absl::DataLossError(absl::StrCat("expected an object of tokens, got ", ShowJson(vocabulary)));
  ASSIGN_OR_RETURN(const TokenizerConfig config, ReadConfig(FolderOf(files[0])));
  const bool roberta = config.tokenizer_class == "RobertaTokenizer";
  if (!roberta && config.tokenizer_class != "GPT2Tokenizer" && !config.tokenizer_class.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab.json and merges.txt of a ", config.tokenizer_class,
                     " are not built; built are those of GPT2Tokenizer, RobertaTokenizer. Save its tokenizer.json"));
  }
  Json json = {{"added_tokens", AddedTokens(vocabulary, config)},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", MergesOf(merges)}}}};
  if (roberta) {
    json["post_processor"] = {{"type", "RobertaProcessing"},
                              {"cls", {"<s>", vocabulary.value("<s>", Json())}},
                              {"sep", {"</s>", vocabulary.value("</s>", Json())}}};
  }
  ASSIGN_OR_RETURN(TokenizerParts parts, PartsOfJson(json));
  AddTokens(config.added, &parts);
  return parts;
}

}  // namespace

MSLUA_TOKENIZER_FORMAT(vocab_merges) { return {"vocab.json and merges.txt", 1, Find, Read}; }

}  // namespace mslua::text
