// The key "pattern" of parts: {"Regex": "\\s+"} or {"String": " "}.
#pragma once

#include "core/text/part_reader.h"
#include "core/text/regex.h"

namespace mslua::text {

// A string is found as it stands. The error names the part and says what was given.
StatusOr<Regex> ReadPattern(PartReader* reader);

}  // namespace mslua::text
