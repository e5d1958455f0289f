// The reader for all JSON from outside: manifests, safetensors headers, rank tables, cluster and strategy files,
// metrics, messages of other processes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace mslua {

using Json = nlohmann::json;

struct JsonLimits {
  int depth = 16;            // of objects and arrays in each other
  int64_t bytes = 16 << 20;  // of text
};

// The value that `text` holds. Takes time and memory linear in the size of the text (times the logarithm of the largest
// object). DATA_LOSS with line and column: text that is no JSON, that is larger or deeper than `limits`, that holds a
// NUL byte or begins with a byte order mark, or that gives a key of one object twice.
StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits = JsonLimits());

// A value as JSON text in ASCII. In place of what is not UTF-8 stands U+FFFD; NaN and infinities are null.
std::string DumpJson(const Json& value);

// A value as text for a message, in ASCII, at most 60 characters.
std::string ShowJson(const Json& value);

}  // namespace mslua
