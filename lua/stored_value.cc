#include "lua/stored_value.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// Converts `from`, [rows, columns] or with `transposed` [columns, rows], to elements of `to`.
void Convert(const TensorType& from, const char* data, bool transposed, int64_t rows, int64_t columns, DType dtype,
             char* to) {
  DispatchDType(from.dtype, [&](auto source) {
    using S = decltype(source);
    DispatchDType(dtype, [&](auto target) {
      using T = decltype(target);
      const S* x = reinterpret_cast<const S*>(data);
      T* y = reinterpret_cast<T*>(to);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const S v = x[transposed ? c * rows + r : r * columns + c];
          y[r * columns + c] = static_cast<T>(static_cast<ComputeType<S>>(v));
        }
      }
    });
  });
}

Status WrongShape(const StoredValue::Piece& piece, const TensorType& stored, const TensorType& whole) {
  return absl::InvalidArgumentError(absl::StrCat(piece.from->path(), ": the tensor '", piece.name, "' is ",
                                                 ToString(stored), ", which is no part of ", ToString(whole)));
}

// The shape in files of each of `pieces` tensors.
Shape StoredShape(const Shape& whole, bool transposed, size_t pieces) {
  Shape shape = whole;
  if (transposed) std::swap(shape[0], shape[1]);
  if (pieces > 1) shape[0] /= static_cast<int64_t>(pieces);
  return shape;
}

}  // namespace

Status ReadStored(const StoredValue& value, const TensorType& whole, absl::Span<const int64_t> begin,
                  const TensorView& part) {
  const Shape& local = part.type.shape;
  const int64_t rows = whole.rank() == 0 ? 1 : local[0], columns = rows == 0 ? 0 : part.type.elements() / rows;
  const int64_t each = whole.rank() == 0 ? 1 : whole.shape[0] / static_cast<int64_t>(value.pieces.size());
  const int64_t first = whole.rank() == 0 ? 0 : begin[0];
  const Shape expected = StoredShape(whole.shape, value.transposed, value.pieces.size());
  std::vector<char> bytes;
  for (size_t i = 0; i < value.pieces.size(); ++i) {
    const StoredValue::Piece& piece = value.pieces[i];
    const checkpoint::TensorRecord* record = piece.from->Find(piece.name);
    if (record == nullptr)
      return absl::NotFoundError(absl::StrCat("no tensor '", piece.name, "' in ", piece.from->path()));
    if (record->type.shape != expected) return WrongShape(piece, record->type, whole);
    const int64_t start = static_cast<int64_t>(i) * each;  // of this piece's rows in the whole
    const int64_t from = std::max(first, start), to = std::min(first + rows, start + each);
    if (from >= to || columns == 0) continue;
    Shape low(begin.begin(), begin.end()), high = low;
    for (size_t d = 0; d < high.size(); ++d) high[d] += local[d];
    if (!low.empty()) low[0] = from - start, high[0] = to - start;
    if (value.transposed) std::swap(low[0], low[1]), std::swap(high[0], high[1]);
    char* const target = static_cast<char*>(part.data) + (from - first) * columns * SizeOf(part.type.dtype);
    if (record->type.dtype == part.type.dtype && !value.transposed) {
      RETURN_IF_ERROR(piece.from->ReadSlice(piece.name, low, high, target));
      continue;
    }
    bytes.resize(static_cast<size_t>((to - from) * columns * SizeOf(record->type.dtype)));
    RETURN_IF_ERROR(piece.from->ReadSlice(piece.name, low, high, bytes.data()));
    Convert(record->type, bytes.data(), value.transposed, to - from, columns, part.type.dtype, target);
  }
  return absl::OkStatus();
}

}  // namespace mslua
