// JPEG, PNG, PPM and PGM files to pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"

namespace mslua::data {

// `bytes` of a JPEG, PNG, or binary PPM or PGM file (P6, P5; values up to 255), known by its first bytes, to RGB:
// *pixels begins with u8[height,width,3] (its capacity is reused). An alpha channel is dropped. *channels, where it is
// asked for: 1 for a grey picture, whose three channels are equal, else 3. Errors read on from the file's name: "is a
// corrupt JPEG (...)".
Status DecodeImage(const std::vector<uint8_t>& bytes, std::vector<uint8_t>* pixels, int64_t* height, int64_t* width,
                   int64_t* channels = nullptr);

}  // namespace mslua::data
