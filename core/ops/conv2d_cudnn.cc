// conv2d and its gradients with cuDNN.
//
// Its engines take images and weights in one format, and prefer channels last. Weights of an operator are
// [o, c / group, kh, kw] beside either format of the images, so that text moves them beside images of channels last.
#include "absl/strings/str_cat.h"
#include "core/device/cudnn_convolution.h"
#include "core/kernels/bilinear.h"
#include "core/kernels/cuda/library_kernel.h"
#include "core/op/device_text.h"

namespace mslua {
namespace {

class CudnnConvolution : public LibraryKernel {
 public:
  // `operands`: which of the call's are the plan's.
  CudnnConvolution(std::unique_ptr<CudnnPlan> plan, std::array<int, 3> operands)
      : plan_(std::move(plan)), operands_(operands) {}
  const char* name() const override { return "cudnn"; }
  int64_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  std::string choice() const override { return plan_->choice(); }
  Status Enqueue(DeviceStream& stream, absl::Span<void* const> operands, void* workspace) const override {
    void* const chosen[] = {operands[operands_[0]], operands[operands_[1]], operands[operands_[2]]};
    return plan_->Enqueue(stream, chosen, workspace);
  }

 private:
  std::unique_ptr<CudnnPlan> plan_;
  std::array<int, 3> operands_;
};

// Moves a weight between the operand `operand` and the scratch memory, where the channels come last.
DeviceStep MoveWeight(const Convolution& c, DType type, const char* operand, bool to_scratch) {
  const std::string packed = absl::StrCat("((", DeviceType(type), "*)scratch)[i]");
  const std::string text = absl::StrCat(Constant("in", c.in_per_group()), Constant("rows", c.window.size[0]),
                                        Constant("columns", c.window.size[1]), R"cuda(
  const i64 k = i % in, b = i / in % columns, a = i / (in * columns) % rows, o = i / (in * columns * rows);
  const i64 at = ((o * in + k) * rows + a) * columns + b;
)cuda");
  return EachElement(NumElements(c.weight_shape()), to_scratch
                                                        ? absl::StrCat(text, "  ", packed, " = ", operand, "[at];\n")
                                                        : absl::StrCat(text, "  ", operand, "[at] = ", packed, ";\n"));
}

std::array<int64_t, 4> SizesOf(const Image& image) { return {image.n, image.c, image.h, image.w}; }

StatusOr<LibraryProgram> Make(const Bilinear& b, ConvolutionKind kind, const LibraryOptions& options) {
  const Convolution& c = b.convolution;
  const Window& window = c.window;
  ConvolutionShape shape;
  shape.kind = kind;
  shape.type = b.type;
  shape.tf32 = options.tf32.convolutions;
  shape.channels_last = c.x.channels_last;
  shape.x = SizesOf(c.x);
  shape.y = SizesOf(c.y);
  shape.w = {c.y.c, c.in_per_group(), window.size[0], window.size[1]};
  shape.stride = window.stride;
  shape.dilation = window.dilation;
  shape.before = window.before;
  shape.after = window.after;
  ASSIGN_OR_RETURN(const CudnnTarget target, CudnnTarget::ThisDevice());
  ASSIGN_OR_RETURN(auto plan, PlanConvolution(target, shape, options.choice));
  LibraryProgram program;
  std::array<int, 3> operands = {0, 1, 2};
  if (c.x.channels_last && c.in_per_group() > 1 && window.size[0] * window.size[1] > 1) {
    constexpr int kScratch = 3;
    program.scratch_bytes = NumElements(c.weight_shape()) * SizeOf(b.type);
    if (kind == ConvolutionKind::kGradWeight) {
      operands[2] = kScratch;
      program.after.push_back(MoveWeight(c, b.type, "y0", false));
    } else {
      operands[1] = kScratch;
      program.before.push_back(MoveWeight(c, b.type, "x1", true));
    }
  }
  program.kernel = std::make_shared<CudnnConvolution>(std::move(plan), operands);
  return program;
}

}  // namespace

MSLUA_LIBRARY_KERNEL(conv2d) { return Make(ConvolutionOf(spec), ConvolutionKind::kForward, options); }
MSLUA_LIBRARY_KERNEL(conv2d_grad_input) { return Make(GradInputOf(spec), ConvolutionKind::kGradInput, options); }
MSLUA_LIBRARY_KERNEL(conv2d_grad_weight) { return Make(GradWeightOf(spec), ConvolutionKind::kGradWeight, options); }

}  // namespace mslua
