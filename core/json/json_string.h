// What JSON that is printed by hand needs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace mslua {

// `text` as a JSON string, quotes and all. What is not UTF-8 becomes U+FFFD.
std::string JsonString(absl::string_view text);

}  // namespace mslua
