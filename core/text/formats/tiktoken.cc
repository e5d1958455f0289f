// tiktoken's lines, "IQ== 0": a token's bytes in base64, and its rank. Llama 3 calls such a file tokenizer.model. The
// file does not say how text is split and which tokens are special; the number of its tokens does.
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/folder.h"
#include "core/json/json.h"
#include "core/text/bpe.h"
#include "core/text/byte_level.h"
#include "core/text/format.h"
#include "core/text/known_patterns.h"
#include "core/text/parts.h"

namespace mslua::text {
namespace {

struct Encodings {
  size_t tokens;  // of the file
  const char* name;
  const char* pattern;
  std::vector<std::pair<std::string, int32_t>> special;
};

const std::vector<Encodings>& Known() {
  static const auto* const known = new std::vector<Encodings>{
      {50256, "r50k_base (GPT-2)", kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {50280, "p50k_base", kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {100256,
       "cl100k_base (GPT-4)",
       kCl100kPattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {199998, "o200k_base (GPT-4o)", kO200kPattern, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {128000, "Llama 3", kCl100kPattern, {}},
  };
  return *known;
}

// Those of Llama 3.1, of which 3.0 has reserved ones at some places.
std::vector<std::pair<std::string, int32_t>> Llama3Special() {
  std::vector<std::pair<std::string, int32_t>> special;
  for (const char* name :
       {"begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "finetune_right_pad_id",
        "reserved_special_token_2", "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"}) {
    special.emplace_back(absl::StrCat("<|", name, "|>"), 128000 + static_cast<int32_t>(special.size()));
  }
  for (int k = 3; special.size() < 256; ++k) {
    special.emplace_back(absl::StrCat("<|reserved_special_token_", k, "|>"),
                         128000 + static_cast<int32_t>(special.size()));
  }
  return special;
}

bool BeginsAsTiktoken(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  const int first = file == nullptr ? EOF : std::fgetc(file.get());
  return first != EOF && (absl::ascii_isalnum(static_cast<unsigned char>(first)) || first == '+' || first == '/');
}

std::vector<std::string> Find(const std::string& path) {
  if (absl::EndsWith(path, ".tiktoken") && IsFile(path)) return {path};
  for (const std::string& model : {path, absl::StrCat(path, "/tokenizer.model")}) {
    if (absl::EndsWith(model, ".model") && IsFile(model) && BeginsAsTiktoken(model)) return {model};
  }
  std::vector<std::string> found;
  if (DIR* folder = opendir(path.c_str()); folder != nullptr) {
    while (const dirent* entry = readdir(folder)) {
      if (absl::EndsWith(entry->d_name, ".tiktoken")) found.push_back(absl::StrCat(path, "/", entry->d_name));
    }
    closedir(folder);
  }
  std::sort(found.begin(), found.end());
  if (found.size() > 1) found.resize(1);
  return found;
}

Status ReadLines(absl::string_view text, Vocabulary* vocabulary, std::vector<Merges::Result>* ranks) {
  int64_t line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty()) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    std::string bytes;
    int32_t rank = 0;
    if (words.size() != 2 || !absl::Base64Unescape(words[0], &bytes) || !absl::SimpleAtoi(words[1], &rank)) {
      return absl::DataLossError(absl::StrCat("line ", line_number, ": expected a token in base64 and its rank, got '",
                                              absl::Utf8SafeCHexEscape(line.substr(0, 60)), "'"));
    }
    const Status added = vocabulary->Add(BytesToText(bytes), rank);
    if (!added.ok()) return Annotate(added, absl::StrCat("line ", line_number));
    ranks->push_back({rank, rank});
  }
  return absl::OkStatus();
}

StatusOr<TokenizerParts> Read(const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const std::string text, ReadTokenizerFile(files[0]));
  Vocabulary vocabulary;
  std::vector<Merges::Result> ranks;
  RETURN_IF_ERROR(ReadLines(text, &vocabulary, &ranks));
  const auto known =
      std::find_if(Known().begin(), Known().end(), [&](const Encodings& e) { return e.tokens == ranks.size(); });
  if (known == Known().end()) {
    const auto name = [](std::string* out, const Encodings& e) { absl::StrAppend(out, e.tokens, " ", e.name); };
    return absl::InvalidArgumentError(absl::StrCat(
        "it has ", ranks.size(), " tokens, which tells no known way to split text; known are ",
        absl::StrJoin(Known(), ", ", name), ". Is the file truncated? For another one give tokenizer.json"));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary.Find(ByteToText(static_cast<uint8_t>(byte))) < 0)
      return absl::DataLossError(absl::StrCat("there is no token for the byte ", byte));
  }
  Merges merges;
  merges.AddSplits(vocabulary, ranks, /*characters=*/true);
  BpeSettings settings;
  settings.whole_first = true;
  TokenizerParts parts;
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), settings);
  const bool llama = known->special.empty();
  for (auto& [content, id] : llama ? Llama3Special() : known->special) {
    AddedToken token;
    token.id = id;
    token.content = content;
    token.special = true;
    parts.added.push_back(std::move(token));
  }
  const Json split = {{"type", "Split"}, {"pattern", {{"Regex", known->pattern}}}, {"behavior", "Isolated"}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json both = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
  ASSIGN_OR_RETURN(parts.pre_tokenizer, ReadPreTokenizer(both, "pre_tokenizer"));
  ASSIGN_OR_RETURN(parts.decoder, ReadDecoder({{"type", "ByteLevel"}}, "decoder"));
  return parts;
}

}  // namespace

MSLUA_TOKENIZER_FORMAT(tiktoken) { return {"a .tiktoken file (Llama 3's tokenizer.model is one)", 3, Find, Read}; }

}  // namespace mslua::text
