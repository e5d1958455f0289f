// CUDA text for operators on images.
#pragma once

#include <string>

#include "core/kernels/convolution.h"
#include "core/op/device_text.h"

namespace mslua {

// Declares n, c, h, w of element `i` of images that are `name`d: "const i64 n = .., c = .., h = .., w = ..;".
std::string ImagePlace(const Image& image);
// Declares the strides name_n, name_c, name_h, name_w of images.
std::string ImageStrides(const std::string& name, const Image& image);
// Declares size_h, stride_h, dilation_h, before_h, height (of the images that the window moves over), and the same of
// the width.
std::string WindowText(const Window& window, const Image& x);

}  // namespace mslua
