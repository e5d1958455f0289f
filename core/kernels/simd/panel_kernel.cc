#include "core/kernels/simd/panel_kernel.h"

#include <algorithm>
#include <utility>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/panel_matmul.h"

namespace mslua {
namespace {

class PanelKernel : public Kernel {
 public:
  explicit PanelKernel(const MatrixProduct& s) : s_(s) {
    // Shares of a matrix are rows of the result, or columns where there are more of them.
    by_rows_ = s.m >= s.n;
    const int64_t size = by_rows_ ? s.m : s.n;
    const double work =
        static_cast<double>(s.batch) * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    const auto worth = static_cast<int64_t>(std::min(work / kWorthAThread, 1e6));
    threads_ = std::clamp<int64_t>(worth, 1, ComputeThreads());
    if (s.batch < threads_) share_ = std::max(kShare, RoundUp(CeilDiv(size, threads_), kShare));
    share_ = std::min(share_ > 0 ? share_ : size, size);
    shares_ = CeilDiv(size, share_);
    threads_ = std::min(threads_, s.batch * shares_);
    PanelProduct most = ProductOf(0);
    thread_bytes_ = RoundUp(PanelBytes(most), kAlignment);
  }

  int64_t scratch_bytes() const override { return threads_ * thread_bytes_; }

  Status Run(const Buffers& buffers) override {
    const auto* a = static_cast<const float*>(buffers.inputs[0]);
    const auto* b = static_cast<const float*>(buffers.inputs[1]);
    auto* y = static_cast<float*>(buffers.outputs[0]);
    const int64_t tasks = s_.batch * shares_;
    ParallelFor(threads_, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        void* const panels = static_cast<char*>(buffers.scratch) + t * thread_bytes_;
        for (int64_t task = tasks * t / threads_; task < tasks * (t + 1) / threads_; ++task) {
          const int64_t i = task / shares_, begin = task % shares_ * share_;
          const PanelProduct p = ProductOf(task % shares_);
          const float* left = a + i * s_.m * s_.k;
          const float* right = b + i * s_.k * s_.n;
          float* to = y + i * s_.m * s_.n;
          (by_rows_ ? left : right) += begin * (by_rows_ ? p.a_row : p.b_column);
          to += begin * (by_rows_ ? p.y_row : 1);
          PanelMatmul(p, left, right, to, panels);
        }
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

  const MatrixProduct s_;
  bool by_rows_ = true;
  int64_t share_ = 0, shares_ = 1;  // rows or columns of a share, and shares of a matrix
  int64_t threads_ = 1;
  int64_t thread_bytes_ = 0;
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

std::unique_ptr<Kernel> MakePanelKernel(const MatrixProduct& p) { return std::make_unique<PanelKernel>(p); }

}  // namespace mslua
