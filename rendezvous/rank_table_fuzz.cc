// Rank tables.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "rendezvous/rank_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  (void)mslua::ParseRankTable(text);
  return 0;
}
