// Image files: a decoded image has memory for the pixels that it declares.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/data/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> pixels;
  int64_t height = 0, width = 0;
  if (!mslua::data::DecodeImage(std::vector<uint8_t>(data, data + size), &pixels, &height, &width).ok()) return 0;
  if (static_cast<int64_t>(pixels.size()) < height * width * 3) std::abort();
  return 0;
}
