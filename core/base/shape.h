// Shapes: the sizes of a tensor's dimensions, outermost first; row-major.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"

namespace mslua {

using Shape = absl::InlinedVector<int64_t, 5>;
inline constexpr int kMaxRank = 8;

// The product of the sizes, 1 for a scalar. It must fit 64 bits (HasTooManyElements).
int64_t NumElements(absl::Span<const int64_t> shape);
// Whether the product of the sizes, zeros aside, comes near 64 bits, which bytes and strides have to fit: without those
// zeros no product of some of the sizes overflows either.
bool HasTooManyElements(absl::Span<const int64_t> shape);
// Elements between neighbours along each dimension of a row-major tensor.
Shape RowMajorStrides(absl::Span<const int64_t> shape);
// "[8,16]"; "[]" for a scalar.
std::string ToString(absl::Span<const int64_t> shape);

// What is known of a tensor at compile time.
struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t elements() const { return NumElements(shape); }
  int64_t bytes() const { return elements() * SizeOf(dtype); }
  friend bool operator==(const TensorType& a, const TensorType& b) { return a.dtype == b.dtype && a.shape == b.shape; }
  friend bool operator!=(const TensorType& a, const TensorType& b) { return !(a == b); }
};
// "f32[8,16]"
std::string ToString(const TensorType& type);

// A tensor in memory, not owned. Dense, row-major.
struct TensorView {
  TensorType type;
  void* data = nullptr;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace mslua
