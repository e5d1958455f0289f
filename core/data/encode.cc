#include "core/data/encode.h"

#include <png.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"

namespace mslua::data {
namespace {

uint8_t Level(float value, double low, double high) {
  const double level = 255 * (static_cast<double>(value) - low) / (high - low);
  return std::isnan(level) ? 0 : static_cast<uint8_t>(std::lround(std::clamp(level, 0.0, 255.0)));
}

}  // namespace

StatusOr<Picture> MakePicture(const TensorView& tensor, const PictureOptions& options) {
  Shape shape = tensor.type.shape;
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  const bool grid = shape.size() == 4;
  if (shape.size() == 3) shape.insert(shape.begin(), 1);
  if (tensor.type.dtype != DType::kF32 || shape.size() != 4 || (shape[1] != 1 && shape[1] != 3) ||
      tensor.type.elements() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected pictures [n, c, h, w], [c, h, w] or [h, w] with c = 1 or 3, got ", ToString(tensor.type)));
  }
  if (!(options.low < options.high))
    return absl::InvalidArgumentError(absl::StrCat("expected low < high, got ", options.low, " and ", options.high));
  const int64_t n = shape[0], c = shape[1], h = shape[2], w = shape[3];
  const int64_t pad = grid ? options.padding : 0, columns = std::min(std::max<int64_t>(1, options.columns), n);
  const int64_t rows = CeilDiv(n, columns);
  Picture picture{rows * (h + pad) + pad, columns * (w + pad) + pad, c, {}};
  picture.pixels.resize(static_cast<size_t>(picture.height * picture.width * c), 0);
  const float* values = tensor.as<float>();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t top = pad + i / columns * (h + pad), left = pad + i % columns * (w + pad);
    for (int64_t k = 0; k < c; ++k) {
      for (int64_t y = 0; y < h; ++y) {
        uint8_t* const row = picture.pixels.data() + ((top + y) * picture.width + left) * c + k;
        for (int64_t x = 0; x < w; ++x) row[x * c] = Level(*values++, options.low, options.high);
      }
    }
  }
  return picture;
}

StatusOr<std::string> EncodePng(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = picture.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = 0;
  std::string bytes;
  for (const bool writes : {false, true}) {
    bytes.resize(size);
    if (png_image_write_to_memory(&image, writes ? bytes.data() : nullptr, &size, 0, picture.pixels.data(), 0,
                                  nullptr) == 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot write a PNG of ", picture.height, "x", picture.width, " pixels: ", image.message));
    }
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace mslua::data
