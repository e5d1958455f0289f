#include "core/sharding/mesh.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {

StatusOr<Mesh> Mesh::Of(int64_t ranks, int64_t first) {
  if (ranks < 1) return absl::InvalidArgumentError(absl::StrCat("a mesh of ", ranks, " ranks: expected 1 or more"));
  Mesh mesh;
  mesh.ranks_ = ranks;
  mesh.first_ = first;
  int64_t rest = ranks;
  for (int64_t p = 2; p * p <= rest; ++p) {
    for (; rest % p == 0; rest /= p) mesh.sizes_.push_back(p);
  }
  if (rest > 1) mesh.sizes_.push_back(rest);
  if (mesh.axes() > kMaxAxes)
    return absl::InvalidArgumentError(
        absl::StrCat(ranks, " ranks have ", mesh.axes(), " prime factors, at most ", kMaxAxes, " are supported"));
  return mesh;
}

int64_t Mesh::Size(absl::Span<const int8_t> axes) const {
  int64_t product = 1;
  for (int8_t a : axes) product *= size(a);
  return product;
}

int64_t Mesh::Stride(int axis) const {
  int64_t stride = 1;
  for (int a = axis + 1; a < axes(); ++a) stride *= size(a);
  return stride;
}

int64_t Mesh::Coordinate(int64_t rank, int axis) const { return (rank - first_) / Stride(axis) % size(axis); }

int64_t Mesh::Index(int64_t rank, absl::Span<const int8_t> axes) const {
  int64_t index = 0;
  for (int8_t a : axes) index = index * size(a) + Coordinate(rank, a);
  return index;
}

std::vector<int64_t> Mesh::Group(int64_t rank, absl::Span<const int8_t> axes) const {
  int64_t origin = rank;
  for (int8_t a : axes) origin -= Coordinate(rank, a) * Stride(a);
  std::vector<int64_t> group{origin};
  for (int8_t a : axes) {
    std::vector<int64_t> wider;
    for (int64_t r : group) {
      for (int64_t c = 0; c < size(a); ++c) wider.push_back(r + c * Stride(a));
    }
    group = std::move(wider);
  }
  return group;
}

std::string Mesh::ToString() const { return sizes_.empty() ? "1" : absl::StrJoin(sizes_, "x"); }

std::string AxisNames(absl::Span<const int8_t> axes) {
  std::string names;
  for (int8_t a : axes) names.push_back(AxisName(a));
  return names;
}

}  // namespace mslua
