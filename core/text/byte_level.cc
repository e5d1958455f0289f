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
  std::array<int, 512> bytes;  // of characters; -1: none

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t c = IsPrintable(byte) ? static_cast<uint32_t>(byte) : next++;
      AppendChar(c, &texts[static_cast<size_t>(byte)]);
      bytes[c] = byte;
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

std::string BytesToText(absl::string_view bytes) {
  const Alphabet& alphabet = TheAlphabet();
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) text += alphabet.texts[static_cast<uint8_t>(byte)];
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
