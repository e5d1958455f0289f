#include "core/text/charsmap.h"

#include "absl/strings/str_cat.h"
#include "core/text/unicode.h"

namespace mslua::text {
namespace {

uint32_t ReadU32(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t k = 0; k < 4; ++k) value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[k])) << (8 * k);
  return value;
}

// The fields of a unit of Darts-clone.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t Label(uint32_t unit) { return unit & (1u << 31 | 0xff); }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
uint32_t Value(uint32_t unit) { return unit & ~(1u << 31); }

}  // namespace

StatusOr<Charsmap> Charsmap::Read(absl::string_view blob) {
  const uint32_t bytes = blob.size() < 4 ? 0 : ReadU32(blob);
  if (blob.size() < 4 || bytes % 4 != 0 || bytes == 0 || bytes > blob.size() - 4)
    return absl::DataLossError(absl::StrCat("table of replacements: truncated, it has ", blob.size(), " bytes"));
  Charsmap map;
  for (size_t at = 4; at < 4 + size_t{bytes}; at += 4) map.units_.push_back(ReadU32(blob.substr(at)));
  map.texts_ = std::string(blob.substr(4 + size_t{bytes}));
  if (FindInvalidUtf8(map.texts_) != absl::string_view::npos)
    return absl::DataLossError("table of replacements: its texts are not UTF-8");
  return map;
}

absl::optional<Charsmap::Match> Charsmap::Find(absl::string_view text, bool longest) const {
  absl::optional<Match> found;
  size_t node = Offset(units_[0]);
  for (size_t k = 0; k < text.size(); ++k) {
    const auto byte = static_cast<uint8_t>(text[k]);
    node ^= byte;
    if (node >= units_.size() || Label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit) || node >= units_.size()) continue;
    const size_t begin = Value(units_[node]);
    // A replacement begins with a character and replaces whole ones.
    const bool whole = k + 1 == text.size() || (static_cast<uint8_t>(text[k + 1]) & 0xc0) != 0x80;
    if (begin > texts_.size() || !whole) continue;
    const absl::string_view rest = absl::string_view(texts_).substr(begin);
    if (!rest.empty() && (static_cast<uint8_t>(rest[0]) & 0xc0) == 0x80) continue;
    found = Match{k + 1, rest.substr(0, rest.find('\0'))};
    if (!longest) break;
  }
  return found;
}

}  // namespace mslua::text
