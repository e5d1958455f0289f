// JPEG and PNG files to pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"

namespace mslua::data {

// `bytes` of a JPEG or PNG file, known by its first bytes, to RGB: *pixels begins with u8[height,width,3] (its
// capacity is reused). An alpha channel is dropped. Errors read on from the file's name: "is a corrupt JPEG (...)".
Status DecodeImage(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, int64_t* height, int64_t* width);

}  // namespace mslua::data
