#include "core/base/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {

int64_t NumElements(absl::Span<const int64_t> shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

bool HasTooManyElements(absl::Span<const int64_t> shape) {
  double elements = 1;
  for (const int64_t n : shape) elements *= static_cast<double>(std::max<int64_t>(n, 1));
  return elements > 1e15;
}

Shape RowMajorStrides(absl::Span<const int64_t> shape) {
  Shape strides(shape.size(), 1);
  for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i) {
    strides[i] = strides[i + 1] * shape[i + 1];
  }
  return strides;
}

std::string ToString(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ","), "]"); }

std::string ToString(const TensorType& type) { return absl::StrCat(Name(type.dtype), ToString(type.shape)); }

}  // namespace mslua
