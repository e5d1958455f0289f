#include "core/base/printable.h"

namespace mslua {

std::string Printable(absl::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto u = static_cast<unsigned char>(c);
    if ((u < 0x20 && c != '\n' && c != '\t') || u == 0x7f) c = '?';
  }
  // The C1 controls of UTF-8 begin an escape sequence on some terminals.
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    const auto next = static_cast<unsigned char>(out[i + 1]);
    if (static_cast<unsigned char>(out[i]) == 0xc2 && next >= 0x80 && next < 0xa0) out[i] = out[i + 1] = '?';
  }
  return out;
}

std::string PrintableMessage(absl::string_view text) {
  std::string out;
  for (const char c : Printable(text)) {
    if (!out.empty() && out.back() == '\n' && c != ' ' && c != '\t' && c != '\n') out += "  ";
    out += c;
  }
  return out;
}

}  // namespace mslua
