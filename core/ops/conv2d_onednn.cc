#include "core/ops/support/convolution.h"
#include "core/ops/support/onednn.h"

namespace mslua {
namespace {

using onednn::Desc;

// The three operands in mslua's memory and as the primitive gets to choose them: images that are channels-last stay
// so, others may be blocked inside; weights always may.
struct Operands {
  Desc x, w, y;
  Desc wanted_x, wanted_w, wanted_y;
  dnnl_dims_t stride, dilation, before, after;
};

Desc ImageDesc(DType t, const Image& image) {
  const int64_t dims[] = {image.n, image.c, image.h, image.w};
  const auto strides = image.strides();
  return onednn::Strided(t, dims, strides);
}

Operands OperandsOf(const Convolution& c, DType t) {
  Operands o;
  Shape w = c.weight_shape();
  if (c.group > 1) {
    w[0] /= c.group;
    w.insert(w.begin(), c.group);
  }
  const int64_t x_dims[] = {c.x.n, c.x.c, c.x.h, c.x.w}, y_dims[] = {c.y.n, c.y.c, c.y.h, c.y.w};
  o.x = ImageDesc(t, c.x);
  o.y = ImageDesc(t, c.y);
  o.w = onednn::Strided(t, w);
  o.wanted_x = c.x.channels_last ? o.x : onednn::AnyFormat(t, x_dims);
  o.wanted_y = c.y.channels_last ? o.y : onednn::AnyFormat(t, y_dims);
  o.wanted_w = onednn::AnyFormat(t, w);
  for (int a = 0; a < 2; ++a) {
    o.stride[a] = c.window.stride[a];
    o.dilation[a] = c.window.dilation[a] - 1;
    o.before[a] = c.window.before[a];
    o.after[a] = c.window.after[a];
  }
  return o;
}

onednn::PrimitiveDesc ForwardDesc(const Operands& o, dnnl_prop_kind_t kind) {
  dnnl_convolution_desc_t desc = {};
  if (dnnl_dilated_convolution_forward_desc_init(&desc, kind, dnnl_convolution_direct, &o.wanted_x, &o.wanted_w,
                                                 nullptr, &o.wanted_y, o.stride, o.dilation, o.before,
                                                 o.after) != dnnl_success) {
    return nullptr;
  }
  return onednn::Describe(&desc);
}

onednn::PrimitiveDesc GradInputDesc(const Operands& o) {
  const onednn::PrimitiveDesc forward = ForwardDesc(o, dnnl_forward_training);
  dnnl_convolution_desc_t desc = {};
  if (forward == nullptr || dnnl_dilated_convolution_backward_data_desc_init(
                                &desc, dnnl_convolution_direct, &o.wanted_x, &o.wanted_w, &o.wanted_y, o.stride,
                                o.dilation, o.before, o.after) != dnnl_success) {
    return nullptr;
  }
  return onednn::Describe(&desc, forward.get());
}

onednn::PrimitiveDesc GradWeightDesc(const Operands& o) {
  const onednn::PrimitiveDesc forward = ForwardDesc(o, dnnl_forward_training);
  dnnl_convolution_desc_t desc = {};
  if (forward == nullptr || dnnl_dilated_convolution_backward_weights_desc_init(
                                &desc, dnnl_convolution_direct, &o.wanted_x, &o.wanted_w, nullptr, &o.wanted_y,
                                o.stride, o.dilation, o.before, o.after) != dnnl_success) {
    return nullptr;
  }
  return onednn::Describe(&desc, forward.get());
}

bool Supports(const OpSpec& spec) { return onednn::Supports(spec.outputs[0].dtype) && spec.outputs[0].elements() > 0; }

}  // namespace

FastKernel OneDnnConvolution() {
  return {"onednn", Supports, [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
            ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(spec.attrs, spec.inputs[0], spec.inputs[1]));
            const Operands o = OperandsOf(c, spec.outputs[0].dtype);
            return onednn::MakeKernel(
                "convolution", ForwardDesc(o, dnnl_forward_training),
                {{DNNL_ARG_SRC, false, 0, o.x}, {DNNL_ARG_WEIGHTS, false, 1, o.w}, {DNNL_ARG_DST, true, 0, o.y}});
          }};
}

FastKernel OneDnnConvolutionGradInput() {
  return {
      "onednn", Supports, [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
        ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(spec.attrs, spec.outputs[0], spec.inputs[1]));
        const Operands o = OperandsOf(c, spec.outputs[0].dtype);
        return onednn::MakeKernel(
            "convolution's input gradient", GradInputDesc(o),
            {{DNNL_ARG_DIFF_DST, false, 0, o.y}, {DNNL_ARG_WEIGHTS, false, 1, o.w}, {DNNL_ARG_DIFF_SRC, true, 0, o.x}});
      }};
}

FastKernel OneDnnConvolutionGradWeight() {
  return {
      "onednn", Supports, [](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
        ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(spec.attrs, spec.inputs[0], spec.outputs[0]));
        const Operands o = OperandsOf(c, spec.outputs[0].dtype);
        return onednn::MakeKernel(
            "convolution's weight gradient", GradWeightDesc(o),
            {{DNNL_ARG_SRC, false, 0, o.x}, {DNNL_ARG_DIFF_DST, false, 1, o.y}, {DNNL_ARG_DIFF_WEIGHTS, true, 0, o.w}});
      }};
}

}  // namespace mslua
