#include "core/text/tokenizer_json.h"

#include "absl/strings/str_cat.h"
#include "core/text/format.h"
#include "core/text/part_reader.h"
#include "core/text/parts.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

StatusOr<AddedToken> ReadAddedToken(const Json& json, const std::string& place) {
  PartReader reader(json, place);
  AddedToken token;
  const int64_t id = reader.Int("id", -1);
  token.content = reader.String("content");
  token.single_word = reader.Bool("single_word", false);
  token.lstrip = reader.Bool("lstrip", false);
  token.rstrip = reader.Bool("rstrip", false);
  token.special = reader.Bool("special", false);
  token.normalized = reader.Bool("normalized", !token.special);
  RETURN_IF_ERROR(reader.status());
  if (id < 0 || id >= kMostTokens)
    return reader.Wrong("id", absl::StrCat("expected 0 to ", kMostTokens - 1, ", got ", id));
  if (token.content.empty()) return reader.Wrong("content", "expected a token, got an empty text");
  token.id = static_cast<int32_t>(id);
  return token;
}

}  // namespace

StatusOr<TokenizerParts> ReadTokenizerJson(absl::string_view text) {
  JsonLimits limits;
  limits.bytes = kLargestTokenizerFile;
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, limits));
  return PartsOfJson(json);
}

StatusOr<TokenizerParts> PartsOfJson(const Json& json) {
  PartReader reader(json, "");
  reader.Ignore({"version", "truncation", "padding"});
  TokenizerParts parts;
  int k = 0;
  for (const Json& token : reader.List("added_tokens")) {
    ASSIGN_OR_RETURN(AddedToken added, ReadAddedToken(token, absl::StrCat("added_tokens[", k++, "]")));
    parts.added.push_back(std::move(added));
  }
  const auto part = [&](const char* key) {
    static const Json* const none = new Json();
    const Json* value = reader.Get(key);
    return value == nullptr ? none : value;
  };
  ASSIGN_OR_RETURN(parts.normalizer, ReadNormalizer(*part("normalizer"), "normalizer"));
  ASSIGN_OR_RETURN(parts.pre_tokenizer, ReadPreTokenizer(*part("pre_tokenizer"), "pre_tokenizer"));
  ASSIGN_OR_RETURN(parts.post_processor, ReadPostProcessor(*part("post_processor"), "post_processor"));
  ASSIGN_OR_RETURN(parts.decoder, ReadDecoder(*part("decoder"), "decoder"));
  const Json* model = reader.Get("model");
  RETURN_IF_ERROR(reader.status());
  if (model == nullptr) return absl::DataLossError("there is no key 'model': this is no tokenizer.json");
  ASSIGN_OR_RETURN(parts.model, ReadModel(*model, "model"));
  return parts;
}

Json SpecialTokenJson(int64_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace mslua::text
