#include "core/text/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/folder.h"
#include "core/json/json.h"
#include "core/text/format.h"
#include "core/text/part_reader.h"

namespace mslua::text {
namespace {

const char* const kRoles[] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};

StatusOr<Json> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTokenizerFile(path));
  JsonLimits limits;
  limits.bytes = kLargestTokenizerFile;
  StatusOr<Json> json = ParseJson(text, limits);
  if (!json.ok()) return Annotate(json.status(), path);
  if (!json->is_object()) return absl::DataLossError(absl::StrCat(path, ": expected an object, got ", ShowJson(*json)));
  return json;
}

// A token is text, or an object with its content; null: not given.
Status ReadRoles(const std::string& path, const Json& json, TokenizerConfig* config) {
  for (const char* role : kRoles) {
    const auto found = json.find(absl::StrCat(role, "_token"));
    if (found == json.end() || found->is_null()) continue;
    const Json* content = &*found;
    if (found->is_object() && found->contains("content")) content = &(*found)["content"];
    if (!content->is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", role, "_token: expected a token, got ", ShowJson(*found)));
    }
    config->roles.emplace(role, content->get<std::string>());
  }
  return absl::OkStatus();
}

StatusOr<bool> ReadFlag(const std::string& path, const Json& json, const char* key, bool fallback) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return fallback;
  if (found->is_boolean()) return found->get<bool>();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", key, ": expected true or false, got ", ShowJson(*found)));
}

// The text itself, or a list of named ones, of which "default" counts.
StatusOr<std::string> TemplateOf(const std::string& path, const Json& json) {
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  for (const Json& named : *found) {
    if (named.is_object() && named.value("name", Json()) == "default" && named.value("template", Json()).is_string())
      return named["template"].get<std::string>();
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": chat_template: expected a text, got ", ShowJson(*found)));
}

// {"<pad>": 32000}; no file: none.
Status ReadAddedTokens(const std::string& path, TokenizerConfig* config) {
  if (!IsFile(path)) return absl::OkStatus();
  config->files.push_back(path);
  ASSIGN_OR_RETURN(const Json json, ReadObject(path));
  for (const auto& [content, id] : json.items()) {
    if (content.empty() || CountOf(id) < 0 || CountOf(id) >= kMostTokens)
      return absl::InvalidArgumentError(absl::StrCat(path, ": expected tokens with their ids, got ", ShowJson(id)));
    AddedToken token;
    token.id = id.get<int32_t>();
    token.content = content;
    for (const auto& [role, name] : config->roles) token.special = token.special || name == content;
    config->added.push_back(std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<TokenizerConfig> ReadConfig(const std::string& folder) {
  TokenizerConfig config;
  const std::string path = absl::StrCat(folder, "/tokenizer_config.json");
  if (IsFile(path)) {
    config.files.push_back(path);
    ASSIGN_OR_RETURN(const Json json, ReadObject(path));
    RETURN_IF_ERROR(ReadRoles(path, json, &config));
    const auto name = json.find("tokenizer_class");
    if (name != json.end() && name->is_string())
      config.tokenizer_class = std::string(absl::StripSuffix(name->get<std::string>(), "Fast"));
    const bool adds_bos = config.tokenizer_class == "LlamaTokenizer" || config.tokenizer_class == "GemmaTokenizer";
    ASSIGN_OR_RETURN(config.add_bos, ReadFlag(path, json, "add_bos_token", adds_bos));
    ASSIGN_OR_RETURN(config.add_eos, ReadFlag(path, json, "add_eos_token", false));
    ASSIGN_OR_RETURN(config.lowercase, ReadFlag(path, json, "do_lower_case", true));
    ASSIGN_OR_RETURN(config.chat_template, TemplateOf(path, json));
  }
  const std::string map = absl::StrCat(folder, "/special_tokens_map.json");
  if (IsFile(map)) {
    config.files.push_back(map);
    ASSIGN_OR_RETURN(const Json json, ReadObject(map));
    RETURN_IF_ERROR(ReadRoles(map, json, &config));
  }
  RETURN_IF_ERROR(ReadAddedTokens(absl::StrCat(folder, "/added_tokens.json"), &config));
  const std::string jinja = absl::StrCat(folder, "/chat_template.jinja");
  if (IsFile(jinja)) {
    config.files.push_back(jinja);
    ASSIGN_OR_RETURN(config.chat_template, ReadTokenizerFile(jinja));
  }
  return config;
}

void AddTokens(const std::vector<AddedToken>& added, TokenizerParts* parts) {
  for (const AddedToken& token : added) {
    const auto same = [&](const AddedToken& other) { return other.id == token.id && other.content == token.content; };
    if (std::none_of(parts->added.begin(), parts->added.end(), same)) parts->added.push_back(token);
  }
}

Status ReadTokenizerConfig(const std::string& folder, TokenizerParts* parts) {
  ASSIGN_OR_RETURN(TokenizerConfig config, ReadConfig(folder));
  parts->roles.insert(config.roles.begin(), config.roles.end());
  parts->chat_template = std::move(config.chat_template);
  parts->files.insert(parts->files.end(), config.files.begin(), config.files.end());
  return absl::OkStatus();
}

}  // namespace mslua::text
