// Characters of UTF-8 text and their properties. Categories and normal forms are utf8proc's (Unicode 14); the
// predicates are those of the tokenizers library, whose files are read here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace mslua::text {

// The byte at which `text` is not UTF-8 (a wrong byte, a truncated or overlong character, a surrogate); npos: it is.
size_t FindInvalidUtf8(absl::string_view text);

// `text` with U+FFFD in the place of what is not UTF-8: one for each longest part that begins a character.
std::string ReplaceInvalidUtf8(absl::string_view text);

// How many bytes at the end of `text` begin a character whose rest is missing; 0 to 3.
size_t UnfinishedBytes(absl::string_view text);

// The character at `*at` of valid UTF-8; moves `*at` behind it.
uint32_t NextChar(absl::string_view text, size_t* at);
void AppendChar(uint32_t c, std::string* text);

// Bytes of the character that begins with this byte of valid UTF-8.
inline size_t CharBytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

bool IsWhitespace(uint32_t c);      // White_Space
bool IsControl(uint32_t c);         // Cc, Cf or Co, without tab, line feed and carriage return
bool IsPunctuation(uint32_t c);     // ASCII punctuation and symbols, P*
bool IsNumeric(uint32_t c);         // N*
bool IsMark(uint32_t c);            // M*
bool IsNonspacingMark(uint32_t c);  // Mn
bool IsWord(uint32_t c);            // \w: letters, marks, decimal digits, connectors
bool IsChinese(uint32_t c);         // the blocks of CJK ideographs that BERT puts spaces around

std::string ToLower(absl::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
std::string Normalized(absl::string_view text, NormalForm form);

// The ends of the grapheme clusters of `text`, in bytes.
std::vector<size_t> GraphemeEnds(absl::string_view text);

}  // namespace mslua::text
