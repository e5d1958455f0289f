#include "core/text/byte_level.h"

#include <array>

#include "core/text/unicode.h"

namespace mslua::text {
namespace {

bool IsPrintable(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Alphabet {
  std::array<std::string, 256> texts;
  std::array<std::array<char, 2>, 256> chars;  // of texts; the second one counts where a text has two bytes
  std::array<int, 512> bytes;                  // of characters; -1: none

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 256;
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t c = IsPrintable(static_cast<int>(byte)) ? static_cast<uint32_t>(byte) : next++;
      AppendChar(c, &texts[byte]);
      chars[byte] = {texts[byte][0], texts[byte].back()};
      bytes[c] = static_cast<int>(byte);
    }
  }
};

const Alphabet& TheAlphabet() {
  static const auto* const alphabet = new Alphabet();
  return *alphabet;
}

}  // namespace

const char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::string& ByteToText(uint8_t byte) { return TheAlphabet().texts[byte]; }

void BytesToText(absl::string_view bytes, std::string* text) {
  const Alphabet& alphabet = TheAlphabet();
  text->resize(2 * bytes.size());
  char* out = &(*text)[0];
  for (const char byte : bytes) {
    const auto k = static_cast<uint8_t>(byte);
    out[0] = alphabet.chars[k][0];
    out[1] = alphabet.chars[k][1];
    out += alphabet.texts[k].size();
  }
  text->resize(static_cast<size_t>(out - text->data()));
}

std::string BytesToText(absl::string_view bytes) {
  std::string text;
  BytesToText(bytes, &text);
  return text;
}

bool TextToBytes(absl::string_view text, std::string* bytes) {
  const Alphabet& alphabet = TheAlphabet();
  std::string found;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = NextChar(text, &at);
    if (c >= alphabet.bytes.size() || alphabet.bytes[c] < 0) return false;
    found.push_back(static_cast<char>(alphabet.bytes[c]));
  }
  bytes->append(found);
  return true;
}

}  // namespace mslua::text
