// scaled_dot_product_attention, packed_attention and the latter's gradient with cuDNN.
//
// The gradient of scaled_dot_product_attention is text: cuDNN's graph starts with y, of which the operator has delta,
// each row's sum of dy * y, alone.
#include "core/device/cudnn_attention.h"
#include "core/kernels/attention.h"
#include "core/kernels/cuda/library_kernel.h"

namespace mslua {
namespace {

class CudnnAttention : public LibraryKernel {
 public:
  // An operand of the plan: that of the call, from its byte `offset` on.
  struct Operand {
    int operand;
    int64_t offset;
  };
  CudnnAttention(std::unique_ptr<CudnnPlan> plan, std::vector<Operand> operands)
      : plan_(std::move(plan)), operands_(std::move(operands)) {}
  const char* name() const override { return "cudnn"; }
  int64_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  std::string choice() const override { return plan_->choice(); }
  Status Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const override {
    std::vector<void*> chosen;
    for (const Operand& o : operands_) chosen.push_back(static_cast<char*>(operands[o.operand]) + o.offset);
    return plan_->Enqueue(stream, chosen, workspace);
  }

 private:
  std::unique_ptr<CudnnPlan> plan_;
  std::vector<Operand> operands_;
};

AttentionShape ShapeOf(const Attention& a, DType type) {
  AttentionShape shape;
  shape.type = type;
  shape.heads = a.heads;
  shape.t = a.t;
  shape.s = a.s;
  shape.d = a.d;
  shape.e = a.e;
  shape.causal = a.causal;
  shape.scale = a.scale;
  return shape;
}

struct Packed {
  AttentionShape shape;
  int64_t part;  // bytes between queries, keys and values of a row
};
Packed PackedShape(const OpSpec& spec) {
  const Shape& qkv = spec.inputs[0].shape;
  const int64_t heads = spec.attrs.Int("heads");
  Packed packed = {ShapeOf(Attention::OfPacked(spec.attrs, qkv), spec.inputs[0].dtype), 0};
  AttentionShape& shape = packed.shape;
  shape.batch = qkv[0];
  shape.heads = heads;
  const int64_t width = heads * shape.d;
  shape.q = shape.k = shape.v = {shape.t * 3 * width, shape.d, 3 * width};
  shape.y = {shape.t * width, shape.d, width};
  packed.part = width * SizeOf(shape.type);
  return packed;
}

// Kernels read 16 bytes at a time.
Status CheckAlignment(const Packed& packed) {
  constexpr int64_t kBytes = 16;
  return packed.part % kBytes == 0 ? absl::OkStatus() : absl::UnimplementedError("heads are not aligned");
}

}  // namespace

MSLUA_LIBRARY_KERNEL(scaled_dot_product_attention) {
  const Attention a = Attention::Of(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape, spec.inputs[2].shape);
  AttentionShape shape = ShapeOf(a, spec.inputs[0].dtype);
  const auto dense = [&](int64_t rows, int64_t row) -> AttentionShape::Strides {
    return {a.heads * rows * row, rows * row, row};
  };
  shape.q = dense(a.t, a.d);
  shape.k = dense(a.s, a.d);
  shape.v = dense(a.s, a.e);
  shape.y = dense(a.t, a.e);
  ASSIGN_OR_RETURN(const CudnnTarget target, CudnnTarget::ThisDevice());
  ASSIGN_OR_RETURN(auto plan, PlanAttention(target, shape, options.choice));
  LibraryProgram program;
  program.kernel = std::make_shared<CudnnAttention>(
      std::move(plan), std::vector<CudnnAttention::Operand>{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}});
  return program;
}

MSLUA_LIBRARY_KERNEL(packed_attention) {
  const Packed packed = PackedShape(spec);
  RETURN_IF_ERROR(CheckAlignment(packed));
  ASSIGN_OR_RETURN(const CudnnTarget target, CudnnTarget::ThisDevice());
  ASSIGN_OR_RETURN(auto plan, PlanAttention(target, packed.shape, options.choice));
  LibraryProgram program;
  program.kernel = std::make_shared<CudnnAttention>(
      std::move(plan),
      std::vector<CudnnAttention::Operand>{{0, 0}, {0, packed.part}, {0, 2 * packed.part}, {1, 0}, {2, 0}});
  return program;
}

// Inputs: qkv, y, lse, dy; output: dqkv.
MSLUA_LIBRARY_KERNEL(packed_attention_grad) {
  const Packed packed = PackedShape(spec);
  RETURN_IF_ERROR(CheckAlignment(packed));
  ASSIGN_OR_RETURN(const CudnnTarget target, CudnnTarget::ThisDevice());
  ASSIGN_OR_RETURN(auto plan, PlanAttentionGrad(target, packed.shape, options.choice));
  constexpr int kScratch = 5;
  LibraryProgram program;
  program.scratch_bytes = spec.inputs[2].bytes();  // delta
  program.kernel =
      std::make_shared<CudnnAttention>(std::move(plan), std::vector<CudnnAttention::Operand>{{0, 0},
                                                                                             {0, packed.part},
                                                                                             {0, 2 * packed.part},
                                                                                             {1, 0},
                                                                                             {2, 0},
                                                                                             {3, 0},
                                                                                             {kScratch, 0},
                                                                                             {4, 0},
                                                                                             {4, packed.part},
                                                                                             {4, 2 * packed.part}});
  return program;
}

}  // namespace mslua
