// The text of a tokenizer.json.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/json/json.h"
#include "core/text/tokenizer.h"

namespace mslua::text {

// DATA_LOSS: no JSON, truncated. INVALID_ARGUMENT: a part or a key that is not built, with its place. `truncation` and
// `padding` are left to who makes batches, as transformers does.
StatusOr<TokenizerParts> ReadTokenizerJson(absl::string_view text);
StatusOr<TokenizerParts> PartsOfJson(const Json& json);

// An entry of "added_tokens": a special token, which text never gives.
Json SpecialTokenJson(int64_t id, const std::string& content);

}  // namespace mslua::text
