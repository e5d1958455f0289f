#include "core/ops/conv2d_panels.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/panel_matmul.h"

namespace mslua {
namespace {

// Places of the window in whole rows of the output, `first` to the one before `last`.
struct Block {
  int64_t first, last;
};

class PanelConvolutionKernel : public Kernel {
 public:
  PanelConvolutionKernel(const Bilinear& b, PlainConvolution plain) : op_(b.op), c_(b.convolution), plain_(plain) {
    const Window& w = c_.window;
    const bool pads = std::max({w.before[0], w.before[1], w.after[0], w.after[1]}) > 0;
    // The gradient of the images drops what falls on the padding. In the other products it is 0.
    guards_ = pads && op_ != BilinearOp::kGradInput;
    taps_ = w.size[0] * w.size[1];
    block_rows_ = std::clamp<int64_t>(kColumnElements / (c_.in_per_group() * taps_ * c_.y.w), 1, c_.y.h);
    channels_ = c_.in_per_group();
    if (op_ == BilinearOp::kGradWeight) {
      channels_ = CeilDiv(channels_, std::min<int64_t>(ComputeThreads(), channels_));
      shares_ = CeilDiv(c_.in_per_group(), channels_);
    }
    tasks_ = op_ == BilinearOp::kGradWeight ? c_.group * shares_ : c_.x.n * c_.group;
    threads_ = std::min<int64_t>(ComputeThreads(), tasks_);
    column_bytes_ = RoundUp(channels_ * taps_ * block_rows_ * c_.y.w * SizeOf(DType::kF64), kAlignment);
    const int64_t panels = PanelBytes(ProductOf({0, block_rows_}), DType::kF64);
    thread_bytes_ = column_bytes_ + RoundUp(panels, kAlignment);
  }

  int64_t scratch_bytes() const override { return threads_ * thread_bytes_; }

  Status Run(const Buffers& buffers) override {
    const auto* const a = static_cast<const double*>(buffers.inputs[0]);
    const auto* const b = static_cast<const double*>(buffers.inputs[1]);
    auto* const y = static_cast<double*>(buffers.outputs[0]);
    if (guards_ && !AllFinite(b, op_ == BilinearOp::kGradWeight ? c_.y.elements() : NumElements(c_.weight_shape()))) {
      plain_(c_, a, b, y);
      return absl::OkStatus();
    }
    ParallelFor(threads_, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        char* const scratch = static_cast<char*>(buffers.scratch) + t * thread_bytes_;
        for (int64_t task = tasks_ * t / threads_; task < tasks_ * (t + 1) / threads_; ++task)
          RunTask(task, a, b, y, reinterpret_cast<double*>(scratch), scratch + column_bytes_);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kColumnElements = 1 << 17;  // of a block's matrix: a second-level cache
  static constexpr int64_t kAlignment = 64;

  static bool AllFinite(const double* x, int64_t n) {
    return std::all_of(x, x + n, [](double v) { return std::isfinite(v); });
  }

  int64_t depth() const { return c_.in_per_group() * taps_; }

  // Of one group's block, which the matrix is an operand or, of the images' gradient, the result of.
  PanelProduct ProductOf(Block block) const {
    const int64_t places = (block.last - block.first) * c_.y.w, outs = c_.out_per_group();
    const auto at = c_.y.strides();  // of a place: the last one
    const bool last = c_.y.channels_last;
    switch (op_) {
      case BilinearOp::kGradInput:
        return {depth(), places, outs, 1, depth(), at[1], at[3], places};
      case BilinearOp::kGradWeight:
        return {outs, channels_ * taps_, places, at[1], at[3], 1, places, depth()};
      default:
        if (last) return {places, outs, depth(), 1, places, 1, depth(), at[3]};
        return {outs, places, depth(), depth(), 1, places, 1, at[1]};
    }
  }

  void RunTask(int64_t task, const double* a, const double* b, double* y, double* columns, void* panels) const {
    if (op_ == BilinearOp::kGradWeight) return GradWeight(task, a, b, y, columns, panels);
    const int64_t n = task / c_.group, group = task % c_.group;
    const int64_t first_out = group * c_.out_per_group(), first_in = group * c_.in_per_group();
    const auto x_at = c_.x.strides(), y_at = c_.y.strides();
    const double* const weight = b + first_out * depth();
    const int64_t in_x = n * x_at[0] + first_in * x_at[1], in_y = n * y_at[0] + first_out * y_at[1];
    if (op_ == BilinearOp::kGradInput) {
      for (int64_t k = 0; k < c_.in_per_group(); ++k) {
        for (int64_t i = 0; i < c_.x.pixels(); ++i) y[in_x + k * x_at[1] + i * x_at[3]] = 0;
      }
    }
    for (int64_t row = 0; row < c_.y.h; row += block_rows_) {
      const Block block = {row, std::min(row + block_rows_, c_.y.h)};
      const PanelProduct p = ProductOf(block);
      if (op_ == BilinearOp::kGradInput) {
        PanelMatmul(p, weight, a + in_y + row * y_at[2], columns, panels);
        ForEachLine(block, c_.in_per_group(), columns, y + in_x, [](double& column, double* x) {
          if (x != nullptr) *x += column;
        });
        continue;
      }
      ForEachLine(block, c_.in_per_group(), columns, a + in_x,
                  [](double& column, const double* x) { column = x != nullptr ? *x : 0; });
      double* const to = y + in_y + row * y_at[2];
      c_.y.channels_last ? PanelMatmul(p, columns, weight, to, panels) : PanelMatmul(p, weight, columns, to, panels);
    }
  }

  // Of a share of a group's input channels. Sums go over images, one after another.
  void GradWeight(int64_t task, const double* x, const double* dy, double* dw, double* columns, void* panels) const {
    const int64_t group = task / shares_, channel = task % shares_ * channels_;
    const int64_t channels = std::min(channels_, c_.in_per_group() - channel);
    const int64_t first_out = group * c_.out_per_group(), first_in = group * c_.in_per_group() + channel;
    const auto x_at = c_.x.strides(), y_at = c_.y.strides();
    for (int64_t n = 0; n < c_.x.n; ++n) {
      for (int64_t row = 0; row < c_.y.h; row += block_rows_) {
        const Block block = {row, std::min(row + block_rows_, c_.y.h)};
        ForEachLine(block, channels, columns, x + n * x_at[0] + first_in * x_at[1],
                    [](double& column, const double* pixel) { column = pixel != nullptr ? *pixel : 0; });
        PanelProduct p = ProductOf(block);
        p.n = channels * taps_;
        p.adds = n > 0 || row > 0;
        PanelMatmul(p, dy + n * y_at[0] + first_out * y_at[1] + row * y_at[2], columns,
                    dw + first_out * depth() + channel * taps_, panels);
      }
    }
  }

  // Calls f(element, pixel) for the elements of the matrix of a block and so many channels; the pixel is null in the
  // padding. `x`: the first pixel of the first channel.
  template <class T, class F>
  void ForEachLine(Block block, int64_t channels, double* columns, T* x, F f) const {
    const Window& w = c_.window;
    const auto at = c_.x.strides();
    for (int64_t k = 0; k < channels; ++k) {
      for (int64_t i = 0; i < w.size[0]; ++i) {
        for (int64_t j = 0; j < w.size[1]; ++j) {
          for (int64_t p = block.first; p < block.last; ++p, columns += c_.y.w) {
            const int64_t row = w.Start(0, p) + i * w.dilation[0];
            T* const line = row >= 0 && row < c_.x.h ? x + k * at[1] + row * at[2] : nullptr;
            for (int64_t q = 0; q < c_.y.w; ++q) {
              const int64_t column = w.Start(1, q) + j * w.dilation[1];
              const bool inside = line != nullptr && column >= 0 && column < c_.x.w;
              f(columns[q], inside ? line + column * at[3] : nullptr);
            }
          }
        }
      }
    }
  }

  const BilinearOp op_;
  const Convolution c_;
  const PlainConvolution plain_;
  bool guards_ = false;
  int64_t taps_ = 1;
  int64_t block_rows_ = 1;             // of the output
  int64_t channels_ = 1, shares_ = 1;  // input channels of a task, and tasks of a group
  int64_t tasks_ = 1, threads_ = 1;
  int64_t column_bytes_ = 0, thread_bytes_ = 0;
};

}  // namespace

FastKernel PanelConvolution(Bilinear (*bilinear_of)(const OpSpec&), PlainConvolution plain) {
  const auto supports = [bilinear_of](const OpSpec& spec) {
    constexpr int64_t kFew = 8;  // products of a tap: panels of fewer are mostly padding
    if (spec.outputs[0].dtype != DType::kF64) return false;
    const Bilinear b = bilinear_of(spec);
    const Convolution& c = b.convolution;
    return b.elements(0) > 0 && b.elements(1) > 0 && b.elements(2) > 0 && c.in_per_group() * c.out_per_group() >= kFew;
  };
  return {"panels", supports, [=](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<PanelConvolutionKernel>(bilinear_of(spec), plain);
          }};
}

}  // namespace mslua
