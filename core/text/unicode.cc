#include "core/text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <cstring>

namespace mslua::text {
namespace {

// Bytes of the character at `at`; 0: not UTF-8. `*begun`: how many bytes do begin a character then, at least 1.
size_t CharAt(absl::string_view text, size_t at, size_t* begun) {
  const auto byte = [&](size_t k) { return at + k < text.size() ? static_cast<uint8_t>(text[at + k]) : 0; };
  const uint8_t first = byte(0);
  *begun = 1;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xbf;  // of the second byte: no overlong form, surrogate or number above U+10FFFF
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  for (size_t k = 1; k < bytes; ++k, low = 0x80, high = 0xbf) {
    if (byte(k) < low || byte(k) > high) return 0;
    ++*begun;
  }
  return bytes;
}

utf8proc_category_t CategoryOf(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool IsAsciiPunctuation(uint32_t c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
}

bool IsAscii(absl::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}

}  // namespace

size_t FindInvalidUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight;
    if (text.size() - at >= sizeof(eight)) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    size_t begun;
    const size_t bytes = CharAt(text, at, &begun);
    if (bytes == 0) return at;
    at += bytes;
  }
  return absl::string_view::npos;
}

std::string ReplaceInvalidUtf8(absl::string_view text) {
  std::string out;
  while (true) {
    const size_t wrong = FindInvalidUtf8(text);
    out.append(text.data(), std::min(wrong, text.size()));
    if (wrong == absl::string_view::npos) return out;
    size_t begun;
    CharAt(text, wrong, &begun);
    AppendChar(0xfffd, &out);
    text.remove_prefix(wrong + begun);
  }
}

size_t UnfinishedBytes(absl::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    size_t begun;
    const size_t bytes = CharAt(text, text.size() - back, &begun);
    return bytes == 0 && begun == back ? back : 0;
  }
  return 0;
}

uint32_t NextChar(absl::string_view text, size_t* at) {
  const auto byte = [&](size_t k) { return static_cast<uint32_t>(static_cast<uint8_t>(text[*at + k])); };
  const uint32_t first = byte(0);
  uint32_t c = first;
  const size_t bytes = CharBytes(text[*at]);
  if (bytes == 2) c = (first & 0x1f) << 6 | (byte(1) & 0x3f);
  if (bytes == 3) c = (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  if (bytes == 4) c = (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
  *at += bytes;
  return c;
}

void AppendChar(uint32_t c, std::string* text) {
  if (c < 0x80) {
    text->push_back(static_cast<char>(c));
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

bool IsWhitespace(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool IsControl(uint32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  const auto category = CategoryOf(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

bool IsPunctuation(uint32_t c) {
  if (c < 0x80) return IsAsciiPunctuation(c);
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsNumeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool IsMark(uint32_t c) {
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsNonspacingMark(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_MN; }

bool IsWord(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  if (c == 0x200c || c == 0x200d) return true;
  // Symbols that are letters: circled and squared ones.
  if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
      (c >= 0x1f170 && c <= 0x1f189)) {
    return true;
  }
  const auto category = CategoryOf(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC;
}

bool IsChinese(uint32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string ToLower(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextChar(text, &at);
    if (c == 0x130) {  // the one character whose lower case is two
      AppendChar('i', &out);
      AppendChar(0x307, &out);
    } else {
      AppendChar(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    }
  }
  return out;
}

std::string Normalized(absl::string_view text, NormalForm form) {
  if (IsAscii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options));
  if (n < 0) std::abort();  // valid UTF-8 has a normal form
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(n));
  std::free(mapped);
  return out;
}

std::vector<size_t> GraphemeEnds(absl::string_view text) {
  std::vector<size_t> ends;
  utf8proc_int32_t state = 0, before = -1;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const auto c = static_cast<utf8proc_int32_t>(NextChar(text, &at));
    if (before >= 0 && utf8proc_grapheme_break_stateful(before, c, &state)) ends.push_back(begin);
    before = c;
  }
  if (!text.empty()) ends.push_back(text.size());
  return ends;
}

}  // namespace mslua::text
