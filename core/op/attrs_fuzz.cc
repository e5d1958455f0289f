// An attribute that parses prints, and parses again to the same text.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "core/op/attrs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = mslua::ParseAttrValue(text);
  if (!value.ok()) return 0;
  const std::string printed = mslua::AttrText(*value);
  const auto again = mslua::ParseAttrValue(printed);
  if (!again.ok() || mslua::AttrText(*again) != printed) std::abort();
  return 0;
}
