#include "core/kernels/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "core/base/parallel_for.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

template <class T>
void CopyRow(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) y[i * to_stride] = x[i * from_stride];
}

void CopyRow(int64_t element_size, const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n * element_size));
    return;
  }
  switch (element_size) {
    case 1:
      return CopyRow<uint8_t>(from, from_stride, to, to_stride, n);
    case 2:
      return CopyRow<uint16_t>(from, from_stride, to, to_stride, n);
    case 4:
      return CopyRow<uint32_t>(from, from_stride, to, to_stride, n);
    default:
      return CopyRow<uint64_t>(from, from_stride, to, to_stride, n);
  }
}

}  // namespace

void StridedCopy(int64_t element_size, const Shape& sizes, const void* from, const Shape& from_strides, void* to,
                 const Shape& to_strides) {
  // Dimensions that lie together on both sides become one.
  Shape n, f, t;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return;
    if (sizes[d] == 1) continue;
    if (!n.empty() && f.back() == from_strides[d] * sizes[d] && t.back() == to_strides[d] * sizes[d]) {
      n.back() *= sizes[d];
      f.back() = from_strides[d];
      t.back() = to_strides[d];
    } else {
      n.push_back(sizes[d]);
      f.push_back(from_strides[d]);
      t.push_back(to_strides[d]);
    }
  }
  if (n.empty()) n = f = t = {1};
  const char* x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
  const int64_t inner = n.back(), f_inner = f.back(), t_inner = t.back();
  n.pop_back();
  if (n.empty()) {
    ParallelFor(inner, kGrain, [&](int64_t begin, int64_t end) {
      CopyRow(element_size, x + begin * f_inner * element_size, f_inner, y + begin * t_inner * element_size, t_inner,
              end - begin);
    });
    return;
  }
  ParallelFor(NumElements(n), std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, x_at = 0, y_at = 0;
      for (int64_t d = static_cast<int64_t>(n.size()) - 1; d >= 0; --d) {
        x_at += rest % n[d] * f[d];
        y_at += rest % n[d] * t[d];
        rest /= n[d];
      }
      CopyRow(element_size, x + x_at * element_size, f_inner, y + y_at * element_size, t_inner, inner);
    }
  });
}

void Fill(int64_t element_size, int64_t n, const void* value, void* to) {
  // A block of copies, small enough for the first cache, is copied again and again.
  constexpr int64_t kBlock = 4096;
  char block[kBlock];
  const int64_t each = kBlock / element_size;
  for (int64_t i = 0; i < std::min(n, each); ++i)
    std::memcpy(block + i * element_size, value, static_cast<size_t>(element_size));
  ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += each)
      std::memcpy(static_cast<char*>(to) + at * element_size, block,
                  static_cast<size_t>(std::min(each, end - at) * element_size));
  });
}

}  // namespace mslua
