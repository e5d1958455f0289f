// The text of a tokenizer.json.
#pragma once

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/json/json.h"
#include "core/text/tokenizer.h"

namespace mslua::text {

// DATA_LOSS: no JSON, truncated. INVALID_ARGUMENT: a part or a key that is not built, with its place. `truncation` and
// `padding` are left to who makes batches, as transformers does.
StatusOr<TokenizerParts> ReadTokenizerJson(absl::string_view text);
StatusOr<TokenizerParts> PartsOfJson(const Json& json);

}  // namespace mslua::text
