// tokenizer_config.json and special_tokens_map.json: which token begins a text, how a conversation is written.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/text/tokenizer.h"

namespace mslua::text {

// Fills roles and chat_template from the files of the folder, and adds their paths to `files`. Without the files:
// nothing.
Status ReadTokenizerConfig(const std::string& folder, TokenizerParts* parts);

// tokenizer_config.json; an empty object where there is none.
struct TokenizerConfig {
  std::string tokenizer_class;  // without "Fast"; empty: not given
  std::map<std::string, std::string> roles;
  std::string chat_template;
  bool add_bos = false, add_eos = false;  // without the key: as the class has it
  bool lowercase = true;                  // do_lower_case, of BERT
  std::vector<AddedToken> added;          // of added_tokens.json
  std::vector<std::string> files;         // that there are
};
StatusOr<TokenizerConfig> ReadConfig(const std::string& folder);

// Adds those whose ids are not there yet.
void AddTokens(const std::vector<AddedToken>& added, TokenizerParts* parts);

}  // namespace mslua::text
