// The ranks of a world (or of one pipeline stage) as a grid whose axes are the prime factors of their number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "core/base/status.h"

namespace mslua {

// Axes of a mesh, most significant first.
using AxisList = absl::InlinedVector<int8_t, 6>;

class Mesh {
 public:
  static constexpr int kMaxAxes = 12;

  // One rank.
  Mesh() = default;
  // Ranks [first, first + ranks): 12 are 2x2x3. An error when there are more than kMaxAxes prime factors.
  static StatusOr<Mesh> Of(int64_t ranks, int64_t first = 0);

  int axes() const { return static_cast<int>(sizes_.size()); }
  int64_t size(int axis) const { return sizes_[static_cast<size_t>(axis)]; }
  // The product of the axes' sizes.
  int64_t Size(absl::Span<const int8_t> axes) const;
  int64_t ranks() const { return ranks_; }
  int64_t first() const { return first_; }

  // Where `rank` is along one axis, and along several (the first is the most significant).
  int64_t Coordinate(int64_t rank, int axis) const;
  int64_t Index(int64_t rank, absl::Span<const int8_t> axes) const;
  // The ranks that differ from `rank` along `axes` only, in the order of Index.
  std::vector<int64_t> Group(int64_t rank, absl::Span<const int8_t> axes) const;

  // "2x2x3"; "1" for one rank.
  std::string ToString() const;
  friend bool operator==(const Mesh& a, const Mesh& b) { return a.first_ == b.first_ && a.sizes_ == b.sizes_; }

 private:
  int64_t Stride(int axis) const;
  int64_t ranks_ = 1, first_ = 0;
  std::vector<int64_t> sizes_;
};

// "a", "b", ...
inline char AxisName(int axis) { return static_cast<char>('a' + axis); }
// "ac"
std::string AxisNames(absl::Span<const int8_t> axes);

}  // namespace mslua
