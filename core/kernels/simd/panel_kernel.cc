#include "core/kernels/simd/panel_kernel.h"

#include <algorithm>
#include <type_traits>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/conversions.h"
#include "core/kernels/simd/panel_matmul.h"

namespace mslua {
namespace {

template <class T>
class PanelKernel : public Kernel {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

 public:
  PanelKernel(const MatrixProduct& s, DType result) : s_(s), rounds_(result == DType::kBF16) {
    // Shares of a matrix are rows of the result, or columns where there are more of them.
    by_rows_ = s.m >= s.n;
    const int64_t size = by_rows_ ? s.m : s.n;
    const double work =
        static_cast<double>(s.batch) * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    const auto worth = static_cast<int64_t>(std::min(work / kWorthAThread, 1e6));
    threads_ = std::clamp<int64_t>(worth, 1, ComputeThreads());
    share_ = s.batch < threads_ ? std::min(size, RoundUp(CeilDiv(size, threads_), kShare)) : size;
    shares_ = CeilDiv(size, share_);
    threads_ = std::min(threads_, s.batch * shares_);
    const PanelProduct most = ProductOf(0);
    panel_bytes_ = RoundUp(PanelBytes(most, DTypeOf<T>::value), kAlignment);
    const int64_t sums = rounds_ ? most.m * most.n * static_cast<int64_t>(sizeof(float)) : 0;
    thread_bytes_ = panel_bytes_ + RoundUp(sums, kAlignment);
  }

  int64_t scratch_bytes() const override { return threads_ * thread_bytes_; }

  Status Run(const Buffers& buffers) override {
    const int64_t tasks = s_.batch * shares_;
    ParallelFor(threads_, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        char* const scratch = static_cast<char*>(buffers.scratch) + t * thread_bytes_;
        for (int64_t task = tasks * t / threads_; task < tasks * (t + 1) / threads_; ++task)
          RunShare(task / shares_, task % shares_, buffers, scratch);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kShare = 96;  // rows or columns: whole tiles
  static constexpr int64_t kAlignment = 64;
  static constexpr double kWorthAThread = 1 << 18;  // products

  // The share's part of a matrix.
  PanelProduct ProductOf(int64_t share) const {
    PanelProduct p{s_.m, s_.n, s_.k, s_.k, 1, s_.n, 1, s_.n};
    if (s_.transpose_a) p.a_row = 1, p.a_column = s_.m;
    if (s_.transpose_b) p.b_row = 1, p.b_column = s_.k;
    int64_t& size = by_rows_ ? p.m : p.n;
    size = std::min(share_, size - share * share_);
    return p;
  }

  void RunShare(int64_t matrix, int64_t share, const Buffers& buffers, char* scratch) const {
    PanelProduct p = ProductOf(share);
    const int64_t begin = share * share_;
    const T* const a =
        static_cast<const T*>(buffers.inputs[0]) + matrix * s_.m * s_.k + (by_rows_ ? begin * p.a_row : 0);
    const T* const b =
        static_cast<const T*>(buffers.inputs[1]) + matrix * s_.k * s_.n + (by_rows_ ? 0 : begin * p.b_column);
    const int64_t at = matrix * s_.m * s_.n + (by_rows_ ? begin * s_.n : begin);
    if (!rounds_) return PanelMatmul(p, a, b, static_cast<Sum*>(buffers.outputs[0]) + at, scratch);
    if constexpr (std::is_same_v<Sum, float>) {
      auto* const sums = reinterpret_cast<float*>(scratch + panel_bytes_);
      p.y_row = p.n;
      PanelMatmul(p, a, b, sums, scratch);
      BF16* const y = static_cast<BF16*>(buffers.outputs[0]) + at;
      for (int64_t i = 0; i < p.m; ++i) FromFloats(sums + i * p.n, p.n, y + i * s_.n);
    }
  }

  const MatrixProduct s_;
  const bool rounds_;  // the result is bf16
  bool by_rows_ = true;
  int64_t share_ = 0, shares_ = 1;  // rows or columns of a share, and shares of a matrix
  int64_t threads_ = 1;
  int64_t panel_bytes_ = 0, thread_bytes_ = 0;
};

}  // namespace

bool PanelsAreFaster(const MatrixProduct& p) {
  constexpr int64_t kFew = 256, kShallow = 32;
  if (p.k < kShallow) return false;
  if (std::min(p.m, p.n) >= kFew) return true;
  const bool right_collides = !p.transpose_b && p.m >= 32 && p.n >= 512 && p.n % 512 == 0;
  const bool left_collides = p.transpose_a && p.n >= 64 && p.m >= 1024 && p.m % 512 == 0;
  return right_collides || left_collides;
}

std::unique_ptr<Kernel> MakePanelKernel(const MatrixProduct& p, DType operands, DType result) {
  if (operands == DType::kF64) return std::make_unique<PanelKernel<double>>(p, result);
  if (operands == DType::kF32) return std::make_unique<PanelKernel<float>>(p, result);
  return std::make_unique<PanelKernel<BF16>>(p, result);
}

}  // namespace mslua
