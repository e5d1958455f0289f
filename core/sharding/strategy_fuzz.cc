// Strategies: what parses prints, and parses again to the same text.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "core/sharding/strategy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto strategy = mslua::ParseStrategy(text); strategy.ok()) {
    const std::string printed = mslua::ToString(*strategy);
    const auto again = mslua::ParseStrategy(printed);
    if (!again.ok() || *again != *strategy) std::abort();
  }
  return 0;
}
