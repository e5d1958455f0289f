// Pickled image files: the matrix that is found lies within the file.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"
#include "core/data/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string keys[] = {"labels"};
  const auto images = mslua::data::ReadPickledImages(text, 6, keys);
  if (!images.ok()) return 0;
  if (images->data_offset < 0 || images->data_offset + images->rows * 6 > static_cast<int64_t>(size)) std::abort();
  return 0;
}
