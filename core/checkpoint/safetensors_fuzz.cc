// A header that is accepted describes tensors that lie within the file.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "core/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file_size = static_cast<int64_t>(size) + 64;
  const auto header = mslua::checkpoint::ParseSafetensorsHeader(text, file_size);
  if (!header.ok()) return 0;
  for (const auto& tensor : header->tensors) {
    if (tensor.begin < 0 || tensor.begin + tensor.type.bytes() > file_size) std::abort();
  }
  return 0;
}
