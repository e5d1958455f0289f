// Matrix products by cuBLASLt. The algorithm is the library's first choice among those that add in a fixed order, or
// the one that an earlier product chose so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/device/device.h"

namespace mslua {

// y [batch, m, n] = op(a) op(b), row-major and dense: a is [batch, m, k], transposed [batch, k, m]; b likewise. f32,
// f64, bf16 and f16; 16-bit products are added in f32.
struct MatmulShape {
  DType type = DType::kF32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool tf32 = false;  // f32 operands may be rounded to TF32
  // What becomes of the product, for one matrix of f32 or 16 bits: y = gelu(product + bias [n] + z [m, n]), gelu by its
  // tanh formula. Bias, z and h, what gelu is of, have the type of y.
  bool wide = false;  // y is f32
  bool bias = false, z = false, gelu = false, h = false;
};

// The memory that a product may use beside its operands: parts of its sum, four times. It follows from the shape alone,
// so that a plan made anywhere is right to the byte.
inline int64_t WorkspaceOf(const MatmulShape& s) {
  constexpr int64_t kLeast = 64 << 10, kMost = 32 << 20;
  return std::clamp<int64_t>(s.batch * s.m * s.n * 16, kLeast, kMost);
}

class CublasMatmul {
 public:
  // NotFound where the library is not on this machine; Unimplemented where it has no algorithm for the shape.
  // `choice`: choice() of an earlier product of this shape, by the same version of the library on the same kind of
  // device; taken where the library says that it can run it.
  static StatusOr<std::unique_ptr<CublasMatmul>> Make(const MatmulShape& shape, const std::string& choice = "");
  ~CublasMatmul();

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // The algorithm, which the library alone understands, in hexadecimal digits.
  std::string choice() const;
  // Pointers of the device, 64-byte aligned; null: the product has none.
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    void* y = nullptr;
    const void* bias = nullptr;
    const void* z = nullptr;  // y may lie over it
    void* h = nullptr;
  };
  Status Enqueue(DeviceStream& stream, const Operands& at, void* workspace) const;

 private:
  CublasMatmul() = default;
  Status Init(const MatmulShape& shape, const std::string& choice);
  // Whether the library can run the algorithm of `choice`, which is then this one's.
  bool Restore(const std::string& choice);
  Status SetEpilogue(const MatmulShape& shape);

  const cuda::Library<cuda::CublasLt>* library_ = nullptr;
  cuda::BlasHandle handle_ = nullptr;
  cuda::BlasMatmul matmul_ = nullptr;
  cuda::BlasLayout a_ = nullptr, b_ = nullptr, y_ = nullptr;
  cuda::BlasAlgorithm algorithm_ = {};
  int64_t workspace_bytes_ = 0;
  bool f64_ = false, bias_ = false, z_ = false, h_ = false;
};

}  // namespace mslua
