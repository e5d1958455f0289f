// The limits hold, and what is read is what the JSON library reads. Depth comes from a prefix: the first byte says how
// many arrays and objects are opened before the rest of the input.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "core/json/json.h"

namespace {

int DepthOf(const mslua::Json& json) {
  int deepest = 0;
  if (!json.is_structured()) return 0;
  for (const auto& inner : json) deepest = std::max(deepest, DepthOf(inner));
  return deepest + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text;
  if (size > 0 && data[0] >= 0x80) {
    const int levels = (data[0] & 0x7f) * 2000;
    for (int i = 0; i < levels; ++i) text += i % 2 == 0 ? "[" : "{\"a\":";
    ++data;
    --size;
  }
  text.append(reinterpret_cast<const char*>(data), size);
  const auto json = mslua::ParseJson(text);
  if (!json.ok()) return 0;
  if (DepthOf(*json) > mslua::JsonLimits().depth) std::abort();
  if (*json != mslua::Json::parse(text, nullptr, /*allow_exceptions=*/false)) std::abort();
  if (mslua::ShowJson(*json).size() > 60) std::abort();
  return 0;
}
