// How a tensor lies on a mesh: for each dimension the axes that shard it (major to minor), and the axes over which it
// is still partial, to be reduced. Along the remaining axes it is replicated.
#pragma once

#include <array>
#include <cstring>
#include <string>

#include "core/base/shape.h"
#include "core/op/factor_rule.h"
#include "core/sharding/mesh.h"

namespace mslua {

// A value of 16 bytes: compared, hashed and copied as one. At most Mesh::kMaxAxes axes and kMaxRank dimensions.
class Layout {
 public:
  // Replicated everywhere, `rank` dimensions.
  explicit Layout(int rank = 0) { bytes_[kRank] = static_cast<uint8_t>(rank); }

  int rank() const { return bytes_[kRank]; }
  // The axes that shard dimension d, major to minor.
  AxisList Dim(int d) const;
  AxisList Partial() const;
  bool partial() const;
  bool replicated() const { return *this == Layout(rank()); }
  // Of the partial axes.
  Reduction reduction() const { return static_cast<Reduction>(bytes_[kReduction]); }

  enum class Use { kReplicated, kDim, kPartial };
  Use UseOf(int axis) const;
  // The dimension that `axis` shards, which it must.
  int DimOf(int axis) const { return (bytes_[axis] >> 4) - 1; }

  // Adds an axis, replicated so far, as the minor-most of dimension d.
  void Append(int d, int axis);
  // Makes a replicated axis partial. All partial axes of a layout have one reduction.
  void SetPartial(int axis, Reduction reduction);
  // Makes an axis replicated: the minor-most of its dimension, or a partial one.
  void Remove(int axis);
  // Replaces the axes of a dimension.
  void SetDim(int d, absl::Span<const int8_t> axes);
  Layout WithoutPartial() const;
  // With the axis names[a] in the place of each axis a; `names` is a permutation of the axes.
  Layout Renamed(const std::array<int8_t, Mesh::kMaxAxes>& names) const;
  // Whether an axis is used as in `b`: in the same place of the same dimension.
  bool SamePlace(const Layout& b, int axis) const { return bytes_[axis] == b.bytes_[axis]; }

  // The sizes of the part of `shape` that each rank has.
  Shape Local(const Mesh& mesh, absl::Span<const int64_t> shape) const;
  // Where the part of `rank` starts in the whole.
  Shape Begin(const Mesh& mesh, absl::Span<const int64_t> shape, int64_t rank) const;
  // Whether every dimension divides by its axes.
  bool Divides(const Mesh& mesh, absl::Span<const int64_t> shape) const;

  // "[a, bc]", "[-, c] sum(ab)": `-` is a dimension that is whole.
  std::string ToString() const;

  friend bool operator==(const Layout& a, const Layout& b) { return a.bytes_ == b.bytes_; }
  friend bool operator!=(const Layout& a, const Layout& b) { return !(a == b); }
  friend bool operator<(const Layout& a, const Layout& b) { return a.bytes_ < b.bytes_; }
  template <class H>
  friend H AbslHashValue(H h, const Layout& l) {
    uint64_t words[2];
    std::memcpy(words, l.bytes_.data(), sizeof words);
    return H::combine(std::move(h), words[0], words[1]);
  }

 private:
  static constexpr int kRank = Mesh::kMaxAxes, kReduction = kRank + 1;
  static constexpr uint8_t kPartialUse = 15;
  // A byte an axis: the high half is 0 (replicated), dimension + 1 or kPartialUse; the low half is the position
  // within the dimension.
  std::array<uint8_t, 16> bytes_{};
};

// Where a box begins in a tensor of this shape.
struct BoxPlace {
  absl::Span<const int64_t> shape, begin;
};
// Copies a box of `sizes` elements from one tensor to another, both dense and row-major.
void CopyBox(DType dtype, absl::Span<const int64_t> sizes, const BoxPlace& from, const void* from_data,
             const BoxPlace& to, void* to_data);

// The least number of elements that a rank's parts in both layouts have in common.
int64_t LeastOverlap(const Mesh& mesh, const Layout& a, const Layout& b, absl::Span<const int64_t> shape);

// Copies the part of `local` sizes at `begin` out of a whole tensor, both dense and row-major.
void CopyPart(const TensorType& type, absl::Span<const int64_t> begin, absl::Span<const int64_t> local,
              const void* whole, void* part);

}  // namespace mslua
