// Threads take rows of the batch and go through all steps on their own: they meet once. The weights lie in panels of
// columns, which stay in the cache of a core.
#include <cstring>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/small_matmul.h"
#include "core/kernels/simd/tile_program.h"
#include "core/ops/declare/indices.h"
#include "core/ops/declare/recurrence_rows.h"

namespace mslua {
namespace {

constexpr int64_t kPanel = 64;  // columns

int64_t Panels(int64_t columns) { return CeilDiv(columns, kPanel); }

// The matrix whose element (l, j) is at l * row + j * column of w, as panels [columns / 64][terms][64].
void Pack(int64_t terms, int64_t columns, const float* w, int64_t row, int64_t column, float* panels) {
  ParallelFor(Panels(columns), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t width = std::min(kPanel, columns - p * kPanel);
      float* const to = panels + p * terms * kPanel;
      const float* const from = w + p * kPanel * column;
      if (column == 1) {
        for (int64_t l = 0; l < terms; ++l) std::copy_n(from + l * row, width, to + l * kPanel);
      } else {
        for (int64_t l = 0; l < terms; ++l) {
          for (int64_t j = 0; j < width; ++j) to[l * kPanel + j] = from[l * row + j * column];
        }
      }
    }
  });
}

// y [rows, columns] = a [rows, terms], dense, times packed panels.
void MultiplyPanels(int64_t rows, int64_t columns, int64_t terms, const float* a, const float* panels, float* y) {
  for (int64_t p = 0; p < Panels(columns); ++p) {
    const int64_t width = std::min(kPanel, columns - p * kPanel);
    SmallMatmul(SmallProduct{rows, width, terms, terms, 1, kPanel, columns}, a, panels + p * terms * kPanel,
                y + p * kPanel);
  }
}

// While it lives, programs are made for the thread that runs them alone.
class OneThread {
 public:
  OneThread() { SetComputeThreads(1); }
  ~OneThread() { SetComputeThreads(before_); }

 private:
  const int before_ = ComputeThreads();
};

TileProgram UnitProgram(const ScalarProgram& program, int64_t h, int64_t inputs, int64_t outputs) {
  const OneThread made_for;
  const TensorType units{DType::kF32, {h}};
  return TileProgram(program, std::vector<TensorType>(static_cast<size_t>(inputs), units),
                     std::vector<TensorType>(static_cast<size_t>(outputs), units));
}

// Parts of the scratch memory, each at a multiple of 64 bytes.
struct Layout {
  int64_t bytes = 0;
  int64_t Add(int64_t more) {
    const int64_t at = bytes;
    bytes += RoundUp(more, 64);
    return at;
  }
};

class RecurrentRun : public Kernel {
 public:
  RecurrentRun(const RecurrentSizes& s, DType lengths, TileProgram program)
      : s_(s), lengths_type_(lengths), program_(std::move(program)), shares_(std::min<int64_t>(ComputeThreads(), s.n)) {
    lengths_at_ = layout_.Add(s.n * static_cast<int64_t>(sizeof(int64_t)));
    program_bytes_ = RoundUp(program_.scratch_bytes(), 64);
    program_at_ = layout_.Add(program_bytes_ * shares_);
  }
  int64_t scratch_bytes() const override { return layout_.bytes; }

 protected:
  // The lengths as i64, in scratch memory.
  StatusOr<const int64_t*> Lengths(const void* from, void* scratch) const {
    const TensorView view{{lengths_type_, {s_.n}}, const_cast<void*>(from)};
    RETURN_IF_ERROR(CheckIndices(view, s_.t + 1, "lengths"));
    int64_t* const lengths = At<int64_t>(scratch, lengths_at_);
    for (int64_t i = 0; i < s_.n; ++i) lengths[i] = IndexAt(view, i);
    return lengths;
  }
  // f(first row, last row, point) for each thread's rows.
  template <class F>
  void EachShare(void* scratch, F f) const {
    ParallelFor(shares_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        void* const tiles = At<char>(scratch, program_at_ + i * program_bytes_);
        const auto point = [&](const float* const* in, float* const* out) {
          program_.Run(reinterpret_cast<const void* const*>(in), reinterpret_cast<void* const*>(out), tiles);
        };
        f(s_.n * i / shares_, s_.n * (i + 1) / shares_, point);
      }
    });
  }
  template <class T>
  static T* At(void* scratch, int64_t offset) {
    return reinterpret_cast<T*>(static_cast<char*>(scratch) + offset);
  }

  const RecurrentSizes s_;
  const DType lengths_type_;
  const TileProgram program_;
  const int64_t shares_;
  Layout layout_;

 private:
  int64_t lengths_at_ = 0, program_at_ = 0, program_bytes_ = 0;
};

int64_t Floats(int64_t n) { return n * static_cast<int64_t>(sizeof(float)); }

class ForwardKernel : public RecurrentRun {
 public:
  ForwardKernel(const RecurrentSizes& s, DType lengths, TileProgram program)
      : RecurrentRun(s, lengths, std::move(program)) {
    panels_ = layout_.Add(Floats(Panels(s.g()) * kPanel * s.h));
    h_ = layout_.Add(Floats(s.n * s.h));
    q_ = layout_.Add(Floats(s.n * s.g()));
  }
  Status Run(const Buffers& b) override {
    int i = 0, o = 0;
    const auto in = [&] { return static_cast<const float*>(b.inputs[i++]); };
    const auto out = [&] { return static_cast<float*>(b.outputs[o++]); };
    ForwardMemory<float> m{};
    m.x = in(), m.w = in(), m.b = in(), m.h0 = in();
    if (s_.memory) m.c0 = in();
    ASSIGN_OR_RETURN(const int64_t* const lengths, Lengths(b.inputs[i], b.scratch));
    m.y = out(), m.hn = out();
    if (s_.memory) m.cn = out();
    if (s_.saved > 0) m.saved = out();
    float* const panels = At<float>(b.scratch, panels_);
    Pack(s_.h, s_.g(), m.w, 1, s_.h, panels);
    EachShare(b.scratch, [&](int64_t first, int64_t last, auto point) {
      ForwardRows(
          s_, m, lengths, first, last, At<float>(b.scratch, h_) + first * s_.h,
          At<float>(b.scratch, q_) + first * s_.g(),
          [&](const float* h, float* q) { MultiplyPanels(last - first, s_.g(), s_.h, h, panels, q); }, point);
    });
    return absl::OkStatus();
  }

 private:
  int64_t panels_ = 0, h_ = 0, q_ = 0;
};

class BackwardKernel : public RecurrentRun {
 public:
  BackwardKernel(const RecurrentSizes& s, DType lengths, TileProgram program, bool through_saved)
      : RecurrentRun(s, lengths, std::move(program)), through_saved_(through_saved) {
    panels_ = layout_.Add(Floats(Panels(s.h) * kPanel * s.g()));
    back_ = layout_.Add(Floats(s.n * s.h));
  }
  Status Run(const Buffers& b) override {
    int i = 0, o = 0;
    const auto in = [&] { return static_cast<const float*>(b.inputs[i++]); };
    const auto out = [&] { return static_cast<float*>(b.outputs[o++]); };
    BackwardMemory<float> m{};
    m.w = in();
    if (s_.saved > 0) m.saved = in();
    m.y = in(), m.h0 = in();
    if (s_.memory) m.c0 = in();
    ASSIGN_OR_RETURN(const int64_t* const lengths, Lengths(b.inputs[i++], b.scratch));
    m.dy = in(), m.dhn = in();
    if (s_.memory) m.dcn = in();
    if (through_saved_) m.dsaved = in();
    m.dx = out();
    if (s_.own_products) m.dq = out();
    m.before = out(), m.dh0 = out();
    if (s_.memory) m.dc0 = out();
    float* const panels = At<float>(b.scratch, panels_);
    Pack(s_.g(), s_.h, m.w, s_.h, 1, panels);
    EachShare(b.scratch, [&](int64_t first, int64_t last, auto point) {
      BackwardRows(
          s_, m, lengths, first, last, At<float>(b.scratch, back_) + first * s_.h,
          [&](const float* dq, float* back) { MultiplyPanels(last - first, s_.h, s_.g(), dq, panels, back); }, point);
    });
    return absl::OkStatus();
  }

 private:
  const bool through_saved_;
  int64_t panels_ = 0, back_ = 0;
};

struct GradientForm {
  size_t y, lengths;
  bool through_saved;
  static GradientForm Of(const RecurrentCell& cell, const OpSpec& spec) {
    const size_t y = cell.saved > 0 ? 2 : 1, lengths = y + 2 + cell.memory;
    return {y, lengths, spec.inputs.size() > lengths + 3 + cell.memory};
  }
};

StatusOr<std::unique_ptr<Kernel>> Make(const RecurrentCellFn& cell_of, bool gradient, const OpSpec& spec) {
  const RecurrentCell cell = cell_of(spec.attrs, false);
  if (!gradient) {
    const RecurrentSizes s = RecurrentSizes::Of(cell, spec.attrs, spec.outputs[0].shape);
    return std::make_unique<ForwardKernel>(
        s, spec.inputs.back().dtype, UnitProgram(ForwardProgram(cell), s.h, s.forward_inputs(), s.forward_outputs()));
  }
  const GradientForm form = GradientForm::Of(cell, spec);
  const RecurrentSizes s = RecurrentSizes::Of(cell, spec.attrs, spec.inputs[form.y].shape);
  const ScalarProgram program = BackwardProgram(cell_of(spec.attrs, form.through_saved), form.through_saved);
  return std::make_unique<BackwardKernel>(
      s, spec.inputs[form.lengths].dtype,
      UnitProgram(program, s.h, s.backward_inputs(form.through_saved), s.backward_outputs()), form.through_saved);
}

}  // namespace

FastKernel RecurrentKernel(const RecurrentCellFn& cell, bool gradient) {
  const auto supports = [](const OpSpec& spec) {
    return spec.inputs[0].dtype == DType::kF32 && spec.outputs[0].elements() > 0;
  };
  return {"highway", supports, [cell, gradient](const OpSpec& spec) { return Make(cell, gradient, spec); }};
}

}  // namespace mslua
