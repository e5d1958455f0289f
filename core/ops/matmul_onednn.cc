#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/amx/tile_bilinear.h"
#include "core/kernels/onednn/onednn.h"
#include "core/kernels/select/bilinear_guard.h"
#include "core/kernels/simd/panel_kernel.h"
#include "core/kernels/simd/partial_sums.h"
#include "core/kernels/simd/small_matmul.h"

namespace mslua {
namespace {

// Below this many multiplications a oneDNN call (about 1 us, and a parallel region) costs more than the product.
constexpr int64_t kSmall = 32 * 1024;

template <class T>
class SmallKernel : public Kernel {
 public:
  explicit SmallKernel(const MatrixProduct& s) : s_(s) {}

  Status Run(const Buffers& buffers) override {
    const T* a = static_cast<const T*>(buffers.inputs[0]);
    const T* b = static_cast<const T*>(buffers.inputs[1]);
    T* y = static_cast<T*>(buffers.outputs[0]);
    for (int64_t i = 0; i < s_.batch; ++i, a += s_.m * s_.k, b += s_.k * s_.n, y += s_.m * s_.n) {
      if (s_.transpose_b) {
        SmallMatmulTransposed(SmallDotProducts{s_.m, s_.n, s_.k, s_.k, s_.k, s_.n}, a, b, y);
      } else {
        SmallMatmul(SmallProduct{s_.m, s_.n, s_.k, s_.transpose_a ? 1 : s_.k, s_.transpose_a ? s_.m : 1, s_.n, s_.n}, a,
                    b, y);
      }
    }
    return absl::OkStatus();
  }

 private:
  const MatrixProduct s_;
};

// A few rows times a large transposed matrix, as in the generation of one token: its time is that of reading the matrix
// once. Threads take rows of the matrix, a block that stays in the cache at a time. A large matrix times a column is
// the column, as a row, times the matrix.
template <class T>
class FewRowsKernel : public Kernel {
 public:
  static bool Supports(const MatrixProduct& product) {
    const MatrixProduct s = IsColumn(product) ? Turned(product) : product;
    return s.batch == 1 && s.m <= 4 && s.transpose_b && (!s.transpose_a || s.m == 1) && s.k > 0 &&
           s.n * s.k * static_cast<int64_t>(sizeof(T)) >= kBytes;
  }
  explicit FewRowsKernel(const MatrixProduct& s) : turned_(IsColumn(s)), s_(turned_ ? Turned(s) : s) {}

  Status Run(const Buffers& buffers) override {
    const T* a = static_cast<const T*>(buffers.inputs[turned_ ? 1 : 0]);
    const T* b = static_cast<const T*>(buffers.inputs[turned_ ? 0 : 1]);
    T* y = static_cast<T*>(buffers.outputs[0]);
    const int64_t blocks = CeilDiv(s_.n, kBlock);
    ParallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t j = block * kBlock, rows = std::min(kBlock, s_.n - j);
        SmallMatmulTransposed(SmallDotProducts{s_.m, rows, s_.k, s_.k, s_.k, s_.n}, a, b + j * s_.k, y + j);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kBytes = 1 << 18;  // of the matrix: what is worth threads
  static constexpr int64_t kBlock = 16;       // rows of the matrix
  static bool IsColumn(const MatrixProduct& s) { return s.n == 1 && !s.transpose_a && s.m > 1; }
  static MatrixProduct Turned(MatrixProduct s) {
    std::swap(s.m, s.n);
    s.transpose_b = true;
    return s;
  }
  const bool turned_;
  const MatrixProduct s_;
};

// `result`: f32 or the operands' type.
using MakeProduct = StatusOr<std::unique_ptr<Kernel>> (*)(const MatrixProduct& p, DType t, DType result);

StatusOr<std::unique_ptr<Kernel>> MakeByOneDnn(const MatrixProduct& p, DType t, DType result) {
  return MakeGuarded(Bilinear::Of(p, t, result), OneDnnWays(t));
}

StatusOr<std::unique_ptr<Kernel>> MakeByPanels(const MatrixProduct& p, DType t, DType result) {
  return MakePanelKernel(p, t, result);
}

// While it lives, primitives are made for the thread that calls them alone.
class OneThread {
 public:
  OneThread() { SetComputeThreads(1); }
  ~OneThread() { SetComputeThreads(before_); }

 private:
  const int before_ = ComputeThreads();
};

// A product in which a thread takes the rows of an operand that it takes in chains: they are in its own cache, which
// oneDNN's shares are not. Where the first operand is not transposed they are rows of the result too; where it is, as
// in gradients of weights, rows of both operands are summed over, and threads make sums of their own, joined then.
class RowsKernel : public Kernel {
 public:
  // Where what all threads read, or make, is small, and there are rows enough to be worth it.
  static bool Supports(const MatrixProduct& s, int64_t threads) {
    constexpr int64_t kShared = 128 * 1024;
    if (threads == 1 || s.batch > 1 || rows(s) < threads * 4 * kBlock) return false;
    if (s.transpose_a) return !s.transpose_b && s.m * s.n <= kShared;
    return s.k * s.n <= kShared;
  }

  // `make`: a share's kernel.
  static StatusOr<std::unique_ptr<Kernel>> Make(const MatrixProduct& s, DType t, int64_t threads, MakeProduct make) {
    auto kernel = std::make_unique<RowsKernel>();
    kernel->sums_ = s.transpose_a;
    kernel->elements_ = s.m * s.n;
    kernel->type_ = t;
    const OneThread made_for;
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t first = rows(s) / kBlock * i / threads * kBlock,
                    last = i + 1 == threads ? rows(s) : rows(s) / kBlock * (i + 1) / threads * kBlock;
      Share share;
      MatrixProduct part = s;
      (s.transpose_a ? part.k : part.m) = last - first;
      ASSIGN_OR_RETURN(share.kernel, make(part, t, kernel->sums_ ? DType::kF32 : t));
      share.a = first * (s.transpose_a ? s.m : s.k) * SizeOf(t);
      share.b = kernel->sums_ ? first * s.n * SizeOf(t) : 0;
      share.y = kernel->sums_ ? i * kernel->elements_ * SizeOf(DType::kF32) : first * s.n * SizeOf(t);
      share.scratch = kernel->scratch_;
      kernel->scratch_ += RoundUp(share.kernel->scratch_bytes(), 64);
      kernel->shares_.push_back(std::move(share));
    }
    kernel->parts_ = kernel->scratch_;
    if (kernel->sums_) kernel->scratch_ += threads * kernel->elements_ * SizeOf(DType::kF32);
    return kernel;
  }

  int64_t scratch_bytes() const override { return scratch_; }

  Status Run(const Buffers& b) override {
    char* const scratch = static_cast<char*>(b.scratch);
    char* const to = sums_ ? scratch + parts_ : static_cast<char*>(b.outputs[0]);
    const int64_t count = static_cast<int64_t>(shares_.size());
    ParallelFor(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Share& s = shares_[i];
        const void* const inputs[] = {static_cast<const char*>(b.inputs[0]) + s.a,
                                      static_cast<const char*>(b.inputs[1]) + s.b};
        void* const outputs[] = {to + s.y};
        s.status = s.kernel->Run({inputs, outputs, scratch + s.scratch});
      }
    });
    for (const Share& s : shares_) RETURN_IF_ERROR(s.status);
    if (sums_) {
      ParallelFor(elements_, kJoinGrain, [&](int64_t begin, int64_t end) {
        JoinSums(reinterpret_cast<const float*>(to), count, elements_, type_, b.outputs[0], begin, end);
      });
    }
    return absl::OkStatus();
  }

 private:
  // Of the first operand, as it is stored.
  static int64_t rows(const MatrixProduct& s) { return s.transpose_a ? s.k : s.m; }

  static constexpr int64_t kBlock = 32;        // rows of tiles: shares are whole ones
  static constexpr int64_t kJoinGrain = 4096;  // numbers that are worth a thread
  struct Share {
    std::unique_ptr<Kernel> kernel;
    int64_t a = 0, b = 0, y = 0, scratch = 0;  // bytes to where it begins
    Status status;
  };
  std::vector<Share> shares_;
  bool sums_ = false;
  DType type_ = DType::kF32;
  int64_t elements_ = 0;             // of the result
  int64_t scratch_ = 0, parts_ = 0;  // bytes
};

StatusOr<std::unique_ptr<Kernel>> MakeInShares(const OpSpec& spec, MakeProduct make) {
  const MatrixProduct s = ProductOf(spec).product;
  const DType t = spec.outputs[0].dtype;
  const int64_t threads = ComputeThreads();
  if (RowsKernel::Supports(s, threads)) return RowsKernel::Make(s, t, threads, make);
  return make(s, t, t);
}

}  // namespace

FastKernel SplitMatmulKernel() {
  const auto supports = [](const OpSpec& spec) { return amx::SupportsTiles(ProductOf(spec)); };
  // oneDNN's kernel, for numbers that are not finite, seldom runs: it is not made for each thread.
  const auto make = [](const OpSpec& spec) { return MakeGuarded(ProductOf(spec), {Way::kTiles, Way::kOneDnn}); };
  return {"bf16x3", supports, make, /*bf16_tiles=*/true};
}

FastKernel SmallMatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    const MatrixProduct s = ProductOf(spec).product;
    return onednn::Supports(spec.outputs[0].dtype) && !(s.transpose_a && s.transpose_b) &&
           s.batch * s.m * s.n * s.k <= kSmall;
  };
  return {"highway", supports, [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
            if (spec.outputs[0].dtype == DType::kF32)
              return std::make_unique<SmallKernel<float>>(ProductOf(spec).product);
            return std::make_unique<SmallKernel<BF16>>(ProductOf(spec).product);
          }};
}

FastKernel FewRowsMatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    const MatrixProduct s = ProductOf(spec).product;
    const DType t = spec.outputs[0].dtype;
    return (t == DType::kF32 && FewRowsKernel<float>::Supports(s)) ||
           (t == DType::kBF16 && FewRowsKernel<BF16>::Supports(s));
  };
  return {"rows", supports, [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
            if (spec.outputs[0].dtype == DType::kF32)
              return std::make_unique<FewRowsKernel<float>>(ProductOf(spec).product);
            return std::make_unique<FewRowsKernel<BF16>>(ProductOf(spec).product);
          }};
}

FastKernel PanelMatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    return onednn::Supports(spec.outputs[0].dtype) && !onednn::HasVectorsOf512() && __builtin_cpu_supports("avx2") &&
           PanelsAreFaster(ProductOf(spec).product);
  };
  return {"panels", supports, [](const OpSpec& spec) { return MakeInShares(spec, MakeByPanels); }};
}

// oneDNN has no products of f64. The smallest take less time than panels take to copy.
FastKernel F64MatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    constexpr int64_t kFew = 256;  // multiplications
    if (spec.outputs[0].dtype != DType::kF64) return false;
    const MatrixProduct s = ProductOf(spec).product;
    return s.batch * s.m * s.n * s.k > kFew;
  };
  return {"panels", supports, [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
            return MakePanelKernel(ProductOf(spec).product, DType::kF64, DType::kF64);
          }};
}

FastKernel OneDnnMatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    return onednn::Supports(spec.outputs[0].dtype) && spec.outputs[0].elements() > 0 && spec.inputs[0].elements() > 0;
  };
  return {"onednn", supports, [](const OpSpec& spec) { return MakeInShares(spec, MakeByOneDnn); }};
}

}  // namespace mslua
