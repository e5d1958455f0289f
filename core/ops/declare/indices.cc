#include "core/ops/declare/indices.h"

#include "absl/strings/str_cat.h"
#include "core/base/shape.h"
#include "core/op/marks.h"

namespace mslua {

namespace {

Status WrongIndex(const Shape& shape, int64_t i, int64_t at, int64_t size, absl::string_view name) {
  Shape where;
  const Shape strides = RowMajorStrides(shape);
  for (size_t d = 0; d < strides.size(); ++d) where.push_back(i / strides[d] % shape[d] + 1);
  return absl::DataLossError(absl::StrCat(name, ToString(absl::MakeConstSpan(where)), " is ", at,
                                          size == 0 ? ", and there is nothing to index" : ", expected 0 to ",
                                          size == 0 ? "" : absl::StrCat(size - 1)));
}

}  // namespace

Status CheckIndices(const TensorView& indices, int64_t size, absl::string_view name) {
  const int64_t n = indices.type.elements();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = IndexAt(indices, i);
    if (at < 0 || at >= size) return WrongIndex(indices.type.shape, i, at, size, name);
  }
  return absl::OkStatus();
}

DeviceFaultFn IndexFault(int operand, std::function<int64_t(const OpSpec&)> size, std::string name) {
  return [=](const OpSpec& spec, const DeviceFault& fault) {
    return WrongIndex(spec.inputs[operand].shape, fault.at, fault.value, size(spec), name);
  };
}

Attrs WithPart(Attrs attrs, int64_t first_row, int64_t rows) {
  return mark::kRows.Set(mark::kFirstRow.Set(attrs, first_row), rows);
}

}  // namespace mslua
