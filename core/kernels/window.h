// Batches of images and windows that slide over them: what convolution and pooling share.
#pragma once

#include <array>

#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/op/op_def.h"

namespace mslua {

// A batch of images. Memory is [n, c, h, w] (data_format "NCHW") or [n, h, w, c] ("NHWC").
struct Image {
  int64_t n = 0, c = 0, h = 0, w = 0;
  bool channels_last = false;

  // Of a tensor with 4 dimensions.
  static Image Of(const TensorType& type, bool channels_last);
  Shape shape() const;
  int64_t pixels() const { return h * w; }
  int64_t elements() const { return n * c * h * w; }
  // Element strides along n, c, h and w.
  std::array<int64_t, 4> strides() const;
};

// A window's geometry along (height, width).
struct Window {
  std::array<int64_t, 2> size, stride, dilation, before, after;  // before, after: the padding

  // Where the window of output position `p` starts in the input along axis `a`; may be negative.
  int64_t Start(int a, int64_t p) const { return p * stride[a] - before[a]; }
};

// How many windows there are along (height, width).
std::array<int64_t, 2> OutputSize(const Window& window, int64_t h, int64_t w);

// Calls f(row, column, i, j) for the pixels of an h x w image that the window at output (p, q) covers: (i, j) is the
// place in the window.
template <class F>
void ForEachTap(const Window& window, int64_t h, int64_t w, int64_t p, int64_t q, F f) {
  for (int64_t i = 0; i < window.size[0]; ++i) {
    const int64_t row = window.Start(0, p) + i * window.dilation[0];
    if (row < 0 || row >= h) continue;
    for (int64_t j = 0; j < window.size[1]; ++j) {
      const int64_t column = window.Start(1, q) + j * window.dilation[1];
      if (column >= 0 && column < w) f(row, column, i, j);
    }
  }
}

bool ChannelsLast(const Attrs& attrs);

// Declares stride, pad_mode, padding, and data_format; with_dilation: dilation too.
//   stride, dilation   one number or (height, width)
//   pad_mode           "valid": none; "same": the output has ceil(input / stride) elements, an odd padding element
//                      goes after; "pad": as `padding` says
//   padding            one number, (height, width) or (top, bottom, left, right)
void DeclareWindow(OpDef& op, bool with_dilation);

// The window of `attrs` over images of h x w; an error when an attribute makes no sense or no window fits.
StatusOr<Window> ResolveWindow(const Attrs& attrs, std::array<int64_t, 2> size, int64_t h, int64_t w);
// Two positive numbers of at most 2^31 - 1 from an attribute of one or two.
StatusOr<std::array<int64_t, 2>> Pair(const Attrs& attrs, absl::string_view name);

}  // namespace mslua
