#include "core/sharding/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mslua {

AxisList Layout::Dim(int d) const {
  int count = 0;
  std::array<int8_t, Mesh::kMaxAxes> at;
  for (int a = 0; a < Mesh::kMaxAxes; ++a) {
    if (bytes_[a] >> 4 != d + 1) continue;
    at[bytes_[a] & 15] = static_cast<int8_t>(a);
    ++count;
  }
  return AxisList(at.begin(), at.begin() + count);
}

AxisList Layout::Partial() const {
  AxisList axes;
  for (int a = 0; a < Mesh::kMaxAxes; ++a) {
    if (UseOf(a) == Use::kPartial) axes.push_back(static_cast<int8_t>(a));
  }
  return axes;
}

bool Layout::partial() const {
  for (int a = 0; a < Mesh::kMaxAxes; ++a) {
    if (UseOf(a) == Use::kPartial) return true;
  }
  return false;
}

Layout::Use Layout::UseOf(int axis) const {
  const int use = bytes_[axis] >> 4;
  return use == 0 ? Use::kReplicated : use == kPartialUse ? Use::kPartial : Use::kDim;
}

void Layout::Append(int d, int axis) {
  int count = 0;
  for (int a = 0; a < Mesh::kMaxAxes; ++a) count += bytes_[a] >> 4 == d + 1;
  bytes_[axis] = static_cast<uint8_t>((d + 1) << 4 | count);
}

void Layout::SetPartial(int axis, Reduction reduction) {
  bytes_[axis] = kPartialUse << 4;
  bytes_[kReduction] = static_cast<uint8_t>(reduction);
}

void Layout::Remove(int axis) {
  bytes_[axis] = 0;
  if (!partial()) bytes_[kReduction] = 0;
}

void Layout::SetDim(int d, absl::Span<const int8_t> axes) {
  for (int8_t a : Dim(d)) bytes_[a] = 0;
  for (int8_t a : axes) Append(d, a);
}

Layout Layout::WithoutPartial() const {
  Layout out = *this;
  for (int8_t a : Partial()) out.Remove(a);
  return out;
}

Layout Layout::Renamed(const std::array<int8_t, Mesh::kMaxAxes>& names) const {
  Layout out = *this;
  for (int a = 0; a < Mesh::kMaxAxes; ++a) out.bytes_[names[a]] = bytes_[a];
  return out;
}

Shape Layout::Local(const Mesh& mesh, absl::Span<const int64_t> shape) const {
  Shape local(shape.begin(), shape.end());
  for (int a = 0; a < mesh.axes(); ++a) {
    if (UseOf(a) == Use::kDim) local[DimOf(a)] /= mesh.size(a);
  }
  return local;
}

Shape Layout::Begin(const Mesh& mesh, absl::Span<const int64_t> shape, int64_t rank) const {
  Shape begin = Local(mesh, shape);
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) begin[d] *= mesh.Index(rank, Dim(d));
  return begin;
}

bool Layout::Divides(const Mesh& mesh, absl::Span<const int64_t> shape) const {
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
    if (shape[d] % mesh.Size(Dim(d)) != 0) return false;
  }
  return true;
}

std::string Layout::ToString() const {
  std::string text = "[";
  for (int d = 0; d < rank(); ++d) {
    const std::string names = AxisNames(Dim(d));
    absl::StrAppend(&text, d ? ", " : "", names.empty() ? "-" : names);
  }
  text += "]";
  if (partial()) absl::StrAppend(&text, " ", Name(reduction()), "(", AxisNames(Partial()), ")");
  return text;
}

void CopyBox(DType dtype, absl::Span<const int64_t> sizes, const BoxPlace& from, const void* from_data,
             const BoxPlace& to, void* to_data) {
  const int64_t rank = static_cast<int64_t>(sizes.size()), size = SizeOf(dtype), row = rank > 0 ? sizes.back() : 1;
  const int64_t rows = NumElements(sizes) / std::max<int64_t>(row, 1);
  const Shape from_strides = RowMajorStrides(from.shape), to_strides = RowMajorStrides(to.shape);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t rest = r, source = rank > 0 ? from.begin.back() : 0, target = rank > 0 ? to.begin.back() : 0;
    for (int64_t d = rank - 2; d >= 0; --d) {
      source += (from.begin[d] + rest % sizes[d]) * from_strides[d];
      target += (to.begin[d] + rest % sizes[d]) * to_strides[d];
      rest /= sizes[d];
    }
    std::memcpy(static_cast<char*>(to_data) + target * size, static_cast<const char*>(from_data) + source * size,
                static_cast<size_t>(row * size));
  }
}

int64_t LeastOverlap(const Mesh& mesh, const Layout& a, const Layout& b, absl::Span<const int64_t> shape) {
  const Shape sizes_a = a.Local(mesh, shape), sizes_b = b.Local(mesh, shape);
  int64_t least = NumElements(shape);
  for (int64_t r = mesh.ranks() - 1; r >= 0 && least > 0; --r) {
    const Shape begin_a = a.Begin(mesh, shape, mesh.first() + r), begin_b = b.Begin(mesh, shape, mesh.first() + r);
    int64_t overlap = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t end = std::min(begin_a[d] + sizes_a[d], begin_b[d] + sizes_b[d]);
      overlap *= std::max<int64_t>(0, end - std::max(begin_a[d], begin_b[d]));
    }
    least = std::min(least, overlap);
  }
  return least;
}

void CopyPart(const TensorType& type, absl::Span<const int64_t> begin, absl::Span<const int64_t> local,
              const void* whole, void* part) {
  const Shape zeros(local.size(), 0);
  CopyBox(type.dtype, local, {type.shape, begin}, whole, {local, zeros}, part);
}

}  // namespace mslua
