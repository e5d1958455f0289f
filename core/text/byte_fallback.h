// Tokens that stand for single bytes: "<0x0A>".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/text/vocabulary.h"

namespace mslua::text {

// The byte; -1: another token.
int ByteOfToken(absl::string_view token);

// Appends the ids of the bytes. False, and nothing appended: one of them has no token.
bool AppendByteTokens(const Vocabulary& vocabulary, absl::string_view bytes, std::vector<int32_t>* ids);

}  // namespace mslua::text
