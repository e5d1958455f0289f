#include "core/base/parallel_for.h"
#include "core/ops/support/onednn.h"
#include "core/ops/support/partial_sums.h"
#include "core/ops/support/small_matmul.h"
#include "core/ops/support/split_matmul.h"
#include "core/ops/support/tile_kernel.h"

namespace mslua {
namespace {

struct MatmulSizes {
  int64_t batch, m, n, k;
  bool transpose_a, transpose_b;
  int64_t rows() const { return transpose_a ? k : m; }  // of the first operand, as it lies
};

MatmulSizes SizesOf(const OpSpec& spec) {
  const Shape& a = spec.inputs[0].shape;
  const Shape& y = spec.outputs[0].shape;
  const size_t r = y.size();
  MatmulSizes s;
  s.transpose_a = spec.attrs.Bool("transpose_a");
  s.transpose_b = spec.attrs.Bool("transpose_b");
  s.m = y[r - 2];
  s.n = y[r - 1];
  s.k = a[s.transpose_a ? r - 2 : r - 1];
  s.batch = NumElements(absl::MakeConstSpan(y).subspan(0, r - 2));
  return s;
}

// Below this many multiplications a oneDNN call (about 1 us, and a parallel region) costs more than the product.
constexpr int64_t kSmall = 32 * 1024;

template <class T>
class SmallKernel : public Kernel {
 public:
  explicit SmallKernel(const MatmulSizes& s) : s_(s) {}

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
  const MatmulSizes s_;
};

// A stack of matrices [batch, rows, columns]; stored transposed, its columns are dense.
onednn::Desc Matrices(DType t, int64_t batch, int64_t rows, int64_t columns, bool transposed) {
  const int64_t strides[] = {rows * columns, transposed ? 1 : columns, transposed ? rows : 1};
  const int64_t dims[] = {batch, rows, columns};
  const int skip = batch == 1 ? 1 : 0;
  return onednn::Strided(t, absl::MakeConstSpan(dims).subspan(skip), absl::MakeConstSpan(strides).subspan(skip));
}

// `result`: f32 or the operands' type.
StatusOr<std::unique_ptr<Kernel>> MakeWhole(const MatmulSizes& s, DType t, DType result) {
  const onednn::Desc a = Matrices(t, s.batch, s.m, s.k, s.transpose_a);
  const onednn::Desc b = Matrices(t, s.batch, s.k, s.n, s.transpose_b);
  const onednn::Desc y = Matrices(result, s.batch, s.m, s.n, false);
  dnnl_matmul_desc_t desc = {};
  dnnl_matmul_desc_init(&desc, &a, &b, nullptr, &y);
  return onednn::MakeKernel("matmul", onednn::Describe(&desc),
                            {{DNNL_ARG_SRC, false, 0, a}, {DNNL_ARG_WEIGHTS, false, 1, b}, {DNNL_ARG_DST, true, 0, y}});
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
  static bool Supports(const MatmulSizes& s, int64_t threads) {
    constexpr int64_t kShared = 128 * 1024;
    if (threads == 1 || s.batch > 1 || s.rows() < threads * 4 * kBlock) return false;
    if (s.transpose_a) return !s.transpose_b && s.m * s.n <= kShared;
    return s.k * s.n <= kShared;
  }

  static StatusOr<std::unique_ptr<Kernel>> Make(const MatmulSizes& s, DType t, int64_t threads) {
    auto kernel = std::make_unique<RowsKernel>();
    kernel->sums_ = s.transpose_a;
    kernel->elements_ = s.m * s.n;
    kernel->type_ = t;
    const OneThread made_for;
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t first = s.rows() / kBlock * i / threads * kBlock,
                    last = i + 1 == threads ? s.rows() : s.rows() / kBlock * (i + 1) / threads * kBlock;
      Share share;
      MatmulSizes part = s;
      (s.transpose_a ? part.k : part.m) = last - first;
      ASSIGN_OR_RETURN(share.kernel, MakeWhole(part, t, kernel->sums_ ? DType::kF32 : t));
      share.a = first * (s.transpose_a ? s.m : s.k) * SizeOf(t);
      share.b = kernel->sums_ ? first * s.n * SizeOf(t) : 0;
      share.y = kernel->sums_ ? i * kernel->elements_ * SizeOf(DType::kF32) : first * s.n * SizeOf(t);
      share.scratch = kernel->scratch_;
      kernel->scratch_ += (share.kernel->scratch_bytes() + 63) / 64 * 64;
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

StatusOr<std::unique_ptr<Kernel>> MakeOneDnn(const OpSpec& spec) {
  const MatmulSizes s = SizesOf(spec);
  const DType t = spec.outputs[0].dtype;
  const int64_t threads = ComputeThreads();
  if (RowsKernel::Supports(s, threads)) return RowsKernel::Make(s, t, threads);
  return MakeWhole(s, t, t);
}

amx::Product ProductOf(const MatmulSizes& s) { return {s.m, s.n, s.k, s.transpose_a, s.transpose_b}; }

}  // namespace

FastKernel SplitMatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    const MatmulSizes s = SizesOf(spec);
    return spec.outputs[0].dtype == DType::kF32 && s.batch == 1 && amx::SupportsSplit(ProductOf(s));
  };
  return {"bf16x3", supports,
          [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
            // Seldom runs: not made for each thread.
            ASSIGN_OR_RETURN(std::unique_ptr<Kernel> plain, MakeWhole(SizesOf(spec), DType::kF32, DType::kF32));
            const amx::SplitMatmul product(ProductOf(SizesOf(spec)), ComputeThreads());
            return std::make_unique<amx::TileKernel<float, amx::SplitMatmul>>(product, std::move(plain));
          },
          /*bf16_tiles=*/true};
}

FastKernel SmallMatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    const MatmulSizes s = SizesOf(spec);
    return onednn::Supports(spec.outputs[0].dtype) && !(s.transpose_a && s.transpose_b) &&
           s.batch * s.m * s.n * s.k <= kSmall;
  };
  return {"highway", supports, [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
            if (spec.outputs[0].dtype == DType::kF32) return std::make_unique<SmallKernel<float>>(SizesOf(spec));
            return std::make_unique<SmallKernel<BF16>>(SizesOf(spec));
          }};
}

FastKernel OneDnnMatmulKernel() {
  const auto supports = [](const OpSpec& spec) {
    return onednn::Supports(spec.outputs[0].dtype) && spec.outputs[0].elements() > 0 && spec.inputs[0].elements() > 0;
  };
  return {"onednn", supports, MakeOneDnn};
}

}  // namespace mslua
