// Pixels to PNG files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/tensor.h"

namespace mslua::data {

struct Picture {
  int64_t height = 0, width = 0, channels = 1;  // 1: grey, 3: RGB
  std::vector<uint8_t> pixels;                  // u8[height,width,channels]
};

struct PictureOptions {
  double low = 0, high = 1;  // values that become 0 and 255; others between or cut off, NaN becomes 0
  int64_t columns = 8;       // of a grid
  int64_t padding = 2;       // black pixels around each picture of a grid
};

// f32[h,w], f32[c,h,w] or, as a grid row by row, f32[n,c,h,w]; c is 1 or 3. One picture has no padding.
// InvalidArgument: another shape or type, no picture, or low is not below high.
StatusOr<Picture> MakePicture(const TensorView& tensor, const PictureOptions& options);

// The bytes of a PNG file. ResourceExhausted: libpng has no memory, or the picture is too large for it.
StatusOr<std::string> EncodePng(const Picture& picture);

}  // namespace mslua::data
