#include "core/ops/testing/convolution_case.h"

#include "absl/strings/str_cat.h"
#include "core/op/registry.h"

namespace mslua::testing {

std::string ToString(const ConvolutionCase& c) {
  return absl::StrCat("n ", c.n, " c ", c.c, " h ", c.h, " w ", c.w, " o ", c.o, " kernel ", c.kernel[0], "x",
                      c.kernel[1], " stride ", c.stride[0]);
}

Call ConvolutionCall(const std::string& name, const ConvolutionCase& c, DType type, const std::string& format) {
  Attrs attrs = {{"stride", c.stride},     {"pad_mode", std::string("pad")}, {"padding", c.padding},
                 {"dilation", c.dilation}, {"data_format", format},          {"group", c.group}};
  const TensorType x{type, format == "NHWC" ? Shape{c.n, c.h, c.w, c.c} : Shape{c.n, c.c, c.h, c.w}},
      w{type, {c.o, c.c / c.group, c.kernel[0], c.kernel[1]}};
  Call forward = *MakeCall(*Operators().Find("conv2d"), {x, w}, attrs);
  if (name == "conv2d") return forward;
  const TensorType& y = forward.outputs[0];
  const bool of_input = name == "conv2d_grad_input";
  of_input ? attrs.Set("input_size", std::vector<int64_t>{c.h, c.w}) : attrs.Set("kernel_size", c.kernel);
  return *MakeCall(*Operators().Find(name), {of_input ? y : x, of_input ? w : y}, attrs);
}

StatusOr<std::vector<double>> ConvolveByReference(const Call& call, std::vector<double> a, std::vector<double> b) {
  std::vector<double> y(static_cast<size_t>(call.outputs[0].elements()));
  const TensorView in[] = {{call.inputs[0], a.data()}, {call.inputs[1], b.data()}},
                   out[] = {{call.outputs[0], y.data()}};
  RETURN_IF_ERROR(call.op->reference({call.attrs, in, out}));
  return y;
}

}  // namespace mslua::testing
