// How the kernels of attention get their matrices.
#pragma once

#include <cstdint>

namespace mslua {

// A matrix of T, BF16 or float, with rows `stride` elements apart.
template <class T>
struct Rows {
  const T* data = nullptr;
  int64_t stride = 0;
};
template <class T>
struct MutableRows {
  T* data = nullptr;
  int64_t stride = 0;
};

}  // namespace mslua
