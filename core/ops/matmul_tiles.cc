// Products of matrices of the types that oneDNN does not have: float64, int32, int64. Pieces of the operands are copied
// so that the innermost loop reads both one element after another (Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication", 2008). Integers wrap round.
#if !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/base/target_clones.h"
#include "core/op/op_def.h"

namespace mslua {
namespace {

constexpr int64_t kRows = 4;     // of a tile, which is summed up in registers
constexpr int64_t kDepth = 128;  // of a piece of the operands
constexpr int64_t kBlock = 96;   // rows that a piece of the right operand is copied for
constexpr int64_t kVector = 64;  // bytes

template <class T>
constexpr int64_t kColumns = 2 * kVector / static_cast<int64_t>(sizeof(T));  // of a tile

// A matrix whose rows and columns lie this many elements apart.
template <class T>
struct Strided {
  const T* data;
  int64_t row, column;
};

// tile[r][c] = the sum over l of a[l][r] b[l][c].
template <class T>
inline __attribute__((always_inline)) void Tile(const T* a, const T* b, int64_t depth, T* tile) {
  typedef T Vector __attribute__((vector_size(kVector)));
  Vector sum[kRows][2] = {};
  for (int64_t l = 0; l < depth; ++l) {
    Vector right[2];
    std::memcpy(right, b + l * kColumns<T>, sizeof right);
    for (int64_t r = 0; r < kRows; ++r) {
      const T left = a[l * kRows + r];
      sum[r][0] += left * right[0];
      sum[r][1] += left * right[1];
    }
  }
  std::memcpy(tile, sum, sizeof sum);
}

// y [rows, n] = a [rows, k] b [k, n]; y is dense, `left` and `right` are memory for the pieces.
template <class T>
inline __attribute__((always_inline)) void Block(Strided<T> a, Strided<T> b, int64_t rows, int64_t n, int64_t k, T* y,
                                                 T* left, T* right) {
  constexpr int64_t kWide = kColumns<T>;
  const int64_t tiles = CeilDiv(rows, kRows);
  if (k == 0) std::fill_n(y, rows * n, T{0});
  for (int64_t l0 = 0; l0 < k; l0 += kDepth) {
    const int64_t depth = std::min(kDepth, k - l0);
    for (int64_t t = 0; t < tiles; ++t) {
      for (int64_t r = 0; r < kRows; ++r) {
        const int64_t row = t * kRows + r;
        T* const to = left + t * kRows * kDepth + r;
        for (int64_t l = 0; l < depth; ++l)
          to[l * kRows] = row < rows ? a.data[row * a.row + (l0 + l) * a.column] : T{0};
      }
    }
    for (int64_t j = 0; j < n; j += kWide) {
      const int64_t columns = std::min(kWide, n - j);
      for (int64_t l = 0; l < depth; ++l) {
        const T* const from = b.data + (l0 + l) * b.row + j * b.column;
        T* const to = right + l * kWide;
        if (columns == kWide && b.column == 1)
          std::memcpy(to, from, kWide * sizeof(T));
        else
          for (int64_t c = 0; c < kWide; ++c) to[c] = c < columns ? from[c * b.column] : T{0};
      }
      for (int64_t t = 0; t < tiles; ++t) {
        T tile[kRows * kWide];
        Tile(left + t * kRows * kDepth, right, depth, tile);
        for (int64_t r = 0; r < std::min(kRows, rows - t * kRows); ++r) {
          T* const to = y + (t * kRows + r) * n + j;
          const T* const sums = tile + r * kWide;
          if (l0 == 0)
            std::memcpy(to, sums, static_cast<size_t>(columns) * sizeof(T));
          else
            for (int64_t c = 0; c < columns; ++c) to[c] += sums[c];
        }
      }
    }
  }
}

#define MSLUA_BLOCK(T)                                                                                       \
  MSLUA_VECTORS void RunBlock(Strided<T> a, Strided<T> b, int64_t rows, int64_t n, int64_t k, T* y, T* left, \
                              T* right) {                                                                    \
    Block(a, b, rows, n, k, y, left, right);                                                                 \
  }
MSLUA_BLOCK(double)
MSLUA_BLOCK(uint32_t)
MSLUA_BLOCK(uint64_t)

template <class T>
class PackedMatmul : public Kernel {
 public:
  explicit PackedMatmul(const OpSpec& s) : ta_(s.attrs.Bool("transpose_a")), tb_(s.attrs.Bool("transpose_b")) {
    const Shape &y = s.outputs[0].shape, &a = s.inputs[0].shape;
    const size_t rank = y.size();
    m_ = y[rank - 2];
    n_ = y[rank - 1];
    k_ = a[rank - (ta_ ? 2 : 1)];
    batch_ = NumElements(absl::MakeConstSpan(y).subspan(0, rank - 2));
    const double work = static_cast<double>(n_) * static_cast<double>(k_) * static_cast<double>(std::min(m_, kBlock));
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kWorthAThread / std::max(1.0, work)));
    threads_ = std::max<int64_t>(1, std::min<int64_t>(ComputeThreads(), Tasks() / grain));
  }
  int64_t scratch_bytes() const override { return threads_ * kScratch; }
  Status Run(const Buffers& b) override {
    const T* const x = static_cast<const T*>(b.inputs[0]);
    const T* const w = static_cast<const T*>(b.inputs[1]);
    T* const y = static_cast<T*>(b.outputs[0]);
    const int64_t blocks = CeilDiv(m_, kBlock), tasks = Tasks();
    ParallelFor(threads_, 1, [&](int64_t first, int64_t last) {
      for (int64_t thread = first; thread < last; ++thread) {
        T* const left = reinterpret_cast<T*>(static_cast<char*>(b.scratch) + thread * kScratch);
        T* const right = left + kBlock * kDepth;
        for (int64_t t = tasks * thread / threads_; t < tasks * (thread + 1) / threads_; ++t) {
          const int64_t s = t / blocks, row = t % blocks * kBlock;
          const Strided<T> a{x + s * m_ * k_ + row * (ta_ ? 1 : k_), ta_ ? 1 : k_, ta_ ? m_ : 1};
          const Strided<T> c{w + s * k_ * n_, tb_ ? 1 : n_, tb_ ? k_ : 1};
          RunBlock(a, c, std::min(kBlock, m_ - row), n_, k_, y + (s * m_ + row) * n_, left, right);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kScratch = (kBlock + kColumns<T>)*kDepth * static_cast<int64_t>(sizeof(T));
  static constexpr double kWorthAThread = 1 << 18;  // products
  int64_t Tasks() const { return batch_ * CeilDiv(m_, kBlock); }

  const bool ta_, tb_;
  int64_t m_ = 0, n_ = 0, k_ = 0, batch_ = 1;
  int64_t threads_ = 1;
};

}  // namespace

FastKernel PackedMatmulKernel() {
  return {"packed",
          [](const OpSpec& s) {
            const DType t = s.inputs[0].dtype;
            return (t == DType::kF64 || t == DType::kI32 || t == DType::kI64) && s.outputs[0].elements() > 0;
          },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            switch (s.inputs[0].dtype) {
              case DType::kF64:
                return std::make_unique<PackedMatmul<double>>(s);
              case DType::kI32:
                return std::make_unique<PackedMatmul<uint32_t>>(s);
              default:
                return std::make_unique<PackedMatmul<uint64_t>>(s);
            }
          }};
}

}  // namespace mslua
