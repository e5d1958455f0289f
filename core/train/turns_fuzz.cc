// Records of turns: what parses writes, and parses again to the same text.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "core/train/turns.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto record = mslua::ParseTurn(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!record.ok()) return 0;
  const auto again = mslua::ParseTurn(mslua::TurnText(*record));
  if (!again.ok() || mslua::TurnText(*again) != mslua::TurnText(*record)) std::abort();
  return 0;
}
