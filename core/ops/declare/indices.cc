#include "core/ops/declare/indices.h"

#include "absl/strings/str_cat.h"
#include "core/base/shape.h"

namespace mslua {

Status CheckIndices(const TensorView& indices, int64_t size, absl::string_view name) {
  const int64_t n = indices.type.elements();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = IndexAt(indices, i);
    if (at >= 0 && at < size) continue;
    Shape where;
    const Shape strides = RowMajorStrides(indices.type.shape);
    for (size_t d = 0; d < strides.size(); ++d) where.push_back(i / strides[d] % indices.type.shape[d]);
    return absl::OutOfRangeError(
        absl::StrCat(name, ToString(absl::MakeConstSpan(where)), " is ", at, ", expected 0 to ", size - 1));
  }
  return absl::OkStatus();
}

}  // namespace mslua
