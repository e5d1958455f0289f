#include "core/kernels/select/attention_kernels.h"

#include <algorithm>
#include <cmath>

#include "absl/types/optional.h"
#include "core/base/parallel_for.h"
#include "core/kernels/amx/attention_amx.h"
#include "core/kernels/simd/attention_vectors.h"

namespace mslua {
namespace {

// Where the matrices [rows, columns] of every head lie in an operand.
struct Heads {
  int64_t inner = 1;                                           // heads that lie between each other
  int64_t outer_stride = 0, inner_stride = 0, row_stride = 0;  // elements

  int64_t At(int64_t h) const { return h / inner * outer_stride + h % inner * inner_stride; }

  // One matrix after another.
  static Heads Dense(int64_t rows, int64_t columns) { return {1, rows * columns, 0, columns}; }
  // Columns [first + h * columns, ..) of [batch, rows, width].
  static Heads Columns(int64_t heads, int64_t rows, int64_t columns, int64_t width) {
    return {heads, rows * width, columns, width};
  }
};

// An operand: what it is made of, and where in the buffers it starts.
struct Operand {
  Heads heads;
  int index = 0;       // of the inputs or outputs
  int64_t offset = 0;  // elements
};

// The operands of both directions. Backward delta is the sum over a row of dy * y less lse's gradient: given, or when
// y is given instead, computed.
struct Operands {
  Operand q, k, v, y, dy, dq, dk, dv;
  int lse = 0;     // forward: of the outputs
  int delta = -1;  // of the inputs; -1: from y
};

// The tiles' softmax takes the highest product for the highest score: the scale is positive.
bool TakesTiles(const Attention& a) { return a.scale > 0 && amx::Supports(a.t, a.s, a.d, a.e); }

class AttentionKernel : public Kernel {
 public:
  // `tiles`: f32 on the processor's tiles. bf16 takes them where it can.
  AttentionKernel(const Attention& a, const Operands& operands, DType t, bool grad, bool tiles)
      : a_(a),
        o_(operands),
        bf16_(t == DType::kBF16),
        grad_(grad),
        slots_(std::min<int64_t>(ComputeThreads(), a.heads)) {
    if ((tiles || bf16_) && TakesTiles(a)) {
      tiled_ = amx::Head{a.t, a.d, a.causal, static_cast<float>(a.scale)};
      slot_bytes_ = bf16_ ? TiledBytes<BF16>() : TiledBytes<float>();
    } else {
      slot_bytes_ = grad_ ? vectors::BackwardBytes(a_) : vectors::ForwardBytes(a_);
    }
  }

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_; }

  Status Run(const Buffers& b) override {
    ParallelFor(slots_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        char* const scratch = static_cast<char*>(b.scratch) + slot * slot_bytes_;
        const int64_t first = a_.heads * slot / slots_, last = a_.heads * (slot + 1) / slots_;
        if (bf16_)
          RunHeads<BF16>(b, first, last, scratch);
        else
          RunHeads<float>(b, first, last, scratch);
      }
    });
    return absl::OkStatus();
  }

 private:
  template <class T>
  int64_t TiledBytes() const {
    return grad_ ? amx::BackwardBytes<T>(*tiled_) : amx::ForwardBytes<T>(*tiled_);
  }

  template <class T>
  void RunHeads(const Buffers& b, int64_t first, int64_t last, void* scratch) const {
    absl::optional<amx::Tiles> tiles;
    if (tiled_) tiles.emplace();
    for (int64_t h = first; h < last; ++h) {
      if (grad_)
        Backward<T>(b, h, scratch);
      else
        Forward<T>(b, h, scratch);
    }
  }

  template <class T>
  static Rows<T> In(const Buffers& b, const Operand& o, int64_t h) {
    return {static_cast<const T*>(b.inputs[o.index]) + o.offset + o.heads.At(h), o.heads.row_stride};
  }
  template <class T>
  static MutableRows<T> Out(const Buffers& b, const Operand& o, int64_t h) {
    return {static_cast<T*>(b.outputs[o.index]) + o.offset + o.heads.At(h), o.heads.row_stride};
  }

  template <class T>
  void Forward(const Buffers& b, int64_t h, void* scratch) const {
    const Rows<T> q = In<T>(b, o_.q, h), k = In<T>(b, o_.k, h), v = In<T>(b, o_.v, h);
    float* const lse = static_cast<float*>(b.outputs[o_.lse]) + h * a_.t;
    if (tiled_)
      amx::Forward<T>(*tiled_, q, k, v, Out<T>(b, o_.y, h), lse, scratch);
    else
      vectors::Forward(a_, q, k, v, Out<T>(b, o_.y, h), lse, scratch);
  }

  template <class T>
  void Backward(const Buffers& b, int64_t h, void* scratch) const {
    const auto row_numbers = [&](int input) { return static_cast<const float*>(b.inputs[input]) + h * a_.t; };
    const bool has_delta = o_.delta >= 0;
    const float *lse = row_numbers(o_.lse), *delta = has_delta ? row_numbers(o_.delta) : nullptr;
    const Rows<T> q = In<T>(b, o_.q, h), k = In<T>(b, o_.k, h), v = In<T>(b, o_.v, h),
                  y = has_delta ? Rows<T>{} : In<T>(b, o_.y, h), dy = In<T>(b, o_.dy, h);
    const MutableRows<T> dq = Out<T>(b, o_.dq, h), dk = Out<T>(b, o_.dk, h), dv = Out<T>(b, o_.dv, h);
    if (tiled_)
      amx::Backward<T>(*tiled_, q, k, v, y, dy, lse, delta, dq, dk, dv, scratch);
    else
      vectors::Backward(a_, q, k, v, y, dy, lse, delta, dq, dk, dv, scratch);
  }

  const Attention a_;
  const Operands o_;
  const bool bf16_, grad_;
  const int64_t slots_;
  int64_t slot_bytes_ = 0;
  absl::optional<amx::Head> tiled_;  // where the processor's tiles are used
};

// Without keys there is nothing to sum: the reference kernel gives zeros.
bool Supports(const OpSpec& s, const Attention& a) {
  const DType type = s.inputs[0].dtype;
  return (type == DType::kF32 || type == DType::kBF16) && s.outputs[0].elements() > 0 && a.s > 0;
}

// Operands as core/ops/scaled_dot_product_attention.cc has them: q, k, v -> y, lse; q, k, v, lse, delta, dy -> dq, dk,
// dv.
Operands Separate(const Attention& a, bool grad) {
  const Heads td = Heads::Dense(a.t, a.d), sd = Heads::Dense(a.s, a.d), se = Heads::Dense(a.s, a.e),
              te = Heads::Dense(a.t, a.e);
  Operands o;
  o.q = {td, 0};
  o.k = {sd, 1};
  o.v = {se, 2};
  o.y = {te, 0};
  o.lse = grad ? 3 : 1;
  o.delta = 4;
  o.dy = {te, 5};
  o.dq = {td, 0};
  o.dk = {sd, 1};
  o.dv = {se, 2};
  return o;
}

// Operands as core/ops/packed_attention.cc has them: qkv -> y, lse; qkv, y, lse, dy -> dqkv.
Operands Packed(const Attention& a, int64_t heads, bool grad) {
  const int64_t width = heads * a.d;
  const Heads third = Heads::Columns(heads, a.t, a.d, 3 * width), whole = Heads::Columns(heads, a.t, a.d, width);
  Operands o;
  o.q = {third, 0, 0};
  o.k = {third, 0, width};
  o.v = {third, 0, 2 * width};
  o.y = {whole, grad ? 1 : 0};
  o.lse = grad ? 2 : 1;
  o.dy = {whole, 3};
  o.dq = {third, 0, 0};
  o.dk = {third, 0, width};
  o.dv = {third, 0, 2 * width};
  return o;
}

using MakeOperands = Operands (*)(const OpSpec&, const Attention&, bool grad);
using SizesOf = Attention (*)(const OpSpec&);

// Vectors of f32, and in bf16 the processor's tiles.
FastKernel Vectors(SizesOf sizes, MakeOperands operands, bool grad) {
  return {"highway", [=](const OpSpec& s) { return Supports(s, sizes(s)); },
          [=](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const Attention a = sizes(s);
            return std::make_unique<AttentionKernel>(a, operands(s, a, grad), s.inputs[0].dtype, grad, false);
          }};
}

// Below this width, and where half of the scores is not needed, vectors are faster in f32 than tiles: three parts of
// each operand, probabilities and gradients of scores too, take longer than products.
constexpr int64_t kTiledWidth = 64;

// f32 on the processor's tiles.
FastKernel Split(SizesOf sizes, MakeOperands operands, bool grad) {
  const auto supports = [=](const OpSpec& s) {
    if (s.inputs[0].dtype != DType::kF32 || s.outputs[0].elements() == 0) return false;
    const Attention a = sizes(s);
    return !a.causal && a.d >= kTiledWidth && TakesTiles(a);
  };
  return {"bf16x3", supports,
          [=](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const Attention a = sizes(s);
            return std::make_unique<AttentionKernel>(a, operands(s, a, grad), DType::kF32, grad, true);
          },
          /*bf16_tiles=*/true};
}

Attention SeparateSizes(const OpSpec& s) {
  return Attention::Of(s.attrs, s.inputs[0].shape, s.inputs[1].shape, s.inputs[2].shape);
}
Operands SeparateOperands(const OpSpec&, const Attention& a, bool grad) { return Separate(a, grad); }
Attention PackedSizes(const OpSpec& s) { return Attention::OfPacked(s.attrs, s.inputs[0].shape); }
Operands PackedOperands(const OpSpec& s, const Attention& a, bool grad) {
  return Packed(a, s.attrs.Int("heads"), grad);
}

}  // namespace

void AddAttentionKernels(OpDef& op, bool grad) {
  op.Fast(Split(SeparateSizes, SeparateOperands, grad)).Fast(Vectors(SeparateSizes, SeparateOperands, grad));
}
void AddPackedAttentionKernels(OpDef& op, bool grad) {
  op.Fast(Split(PackedSizes, PackedOperands, grad)).Fast(Vectors(PackedSizes, PackedOperands, grad));
}

}  // namespace mslua
