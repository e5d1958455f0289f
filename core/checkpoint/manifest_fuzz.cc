// Manifests without their digest, which is put behind them: damage is to reach the parser. What parses serializes, and
// parses again to the same text.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/hash.h"
#include "core/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = absl::StrCat(text, ",\n\"blake2b\":\"", mslua::Blake2bHex(text), "\"}\n");
  const auto manifest = mslua::checkpoint::ParseManifest(whole);
  if (!manifest.ok()) return 0;
  const auto again = mslua::checkpoint::SerializeManifest(*manifest);
  if (!again.ok() || !mslua::checkpoint::ParseManifest(*again).ok()) std::abort();
  return 0;
}
