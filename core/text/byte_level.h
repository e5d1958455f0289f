// GPT-2's alphabet of bytes: each byte is one printable character of its own, so that any bytes are text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace mslua::text {

// The regular expression by which GPT-2 splits text.
extern const char kGpt2Pattern[];

// The character of a byte, as UTF-8.
const std::string& ByteToText(uint8_t byte);
// The characters of all bytes.
std::string BytesToText(absl::string_view bytes);
// The same, in the place of what is in `*text`.
void BytesToText(absl::string_view bytes, std::string* text);
// The bytes of such characters. False, and `*bytes` as it was: another character is among them.
bool TextToBytes(absl::string_view text, std::string* bytes);

}  // namespace mslua::text
