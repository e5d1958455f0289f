#include "core/kernels/window.h"

namespace mslua {

Image Image::Of(const TensorType& type, bool channels_last) {
  const Shape& s = type.shape;
  if (channels_last) return {s[0], s[3], s[1], s[2], true};
  return {s[0], s[1], s[2], s[3], false};
}

Shape Image::shape() const { return channels_last ? Shape{n, h, w, c} : Shape{n, c, h, w}; }

std::array<int64_t, 4> Image::strides() const {
  if (channels_last) return {h * w * c, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

std::array<int64_t, 2> OutputSize(const Window& window, int64_t h, int64_t w) {
  std::array<int64_t, 2> out;
  const std::array<int64_t, 2> in = {h, w};
  for (int a = 0; a < 2; ++a) {
    const int64_t span = (window.size[a] - 1) * window.dilation[a] + 1;
    const int64_t space = in[a] + window.before[a] + window.after[a] - span;
    out[a] = space < 0 ? 0 : space / window.stride[a] + 1;
  }
  return out;
}

}  // namespace mslua
