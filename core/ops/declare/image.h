// Attributes of windows that slide over images: what convolution and pooling share.
#pragma once

#include <array>
#include <string>

#include "core/base/status.h"
#include "core/kernels/window.h"
#include "core/op/op_def.h"

namespace mslua {

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
