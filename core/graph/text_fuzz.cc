// A graph that parses prints, and parses again to the same text.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "core/graph/graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = mslua::ParseGraph(text);
  if (!graph.ok()) return 0;
  const std::string printed = ToString(*graph);
  const auto again = mslua::ParseGraph(printed);
  if (!again.ok() || ToString(*again) != printed) std::abort();
  return 0;
}
