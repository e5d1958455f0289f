#include "core/text/byte_fallback.h"

#include "absl/strings/str_format.h"

namespace mslua::text {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

int ByteOfToken(absl::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int high = HexDigit(token[3]), low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool AppendByteTokens(const Vocabulary& vocabulary, absl::string_view bytes, std::vector<int32_t>* ids) {
  const size_t before = ids->size();
  for (const char byte : bytes) {
    const int32_t id = vocabulary.Find(absl::StrFormat("<0x%02X>", static_cast<uint8_t>(byte)));
    if (id < 0) {
      ids->resize(before);
      return false;
    }
    ids->push_back(id);
  }
  return true;
}

}  // namespace mslua::text
