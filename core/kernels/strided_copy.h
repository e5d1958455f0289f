// Copies a box of elements between two strided layouts: what slicing, padding, concatenation and splitting are.
#pragma once

#include <cstdint>

#include "core/base/shape.h"

namespace mslua {

// Copies a box of `sizes` elements of `element_size` bytes (1, 2, 4 or 8). Strides are in elements, outermost first;
// `from` and `to` point at the box's first element. The two must not overlap. Large boxes use the compute threads.
void StridedCopy(int64_t element_size, const Shape& sizes, const void* from, const Shape& from_strides, void* to,
                 const Shape& to_strides);

// Fills n elements of `element_size` bytes with the element at `value`.
void Fill(int64_t element_size, int64_t n, const void* value, void* to);

}  // namespace mslua
