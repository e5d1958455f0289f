#include "core/onnx/lowering.h"
#include "core/ops/declare/row_norm.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(layer_norm) {
  const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };

  OpDef op("layer_norm");
  op.Computes(Precision::kWide);
  op.Class("LayerNorm");
  op.Doc(
      "Layer normalisation (Ba et al., 2016): y = (x - mean) * rstd * scale + bias, with mean and variance over the "
      "axes from `axis` to the last, rstd = 1 / sqrt(variance + eps). x [.., d..]; scale and bias [d..] in f32 (f64 "
      "for f64); gives y like x, and mean and rstd [..].");
  DeclareRowNorm(op, true);
  op.Grad(RowNormGrad("layer_norm", true));
  op.AddSample({{f32({3, 5}), f32({5}), f32({5})}, {}, 0.5, 2});
  op.AddSample({{f32({2, 3, 4, 5}), f32({4, 5}), f32({4, 5})}, {{"axis", int64_t{2}}}, 0.5, 2});

  OpDef input("layer_norm_grad_input");
  input.Doc(
      "The gradient of layer_norm's x: rstd * (dy * scale - its row's mean - n * the row's mean of dy * scale * n), "
      "with n = (x - mean) * rstd.");
  DeclareRowNormGradInput(input, true);
  input.AddSample({{f32({3, 35}), f32({3, 35}), f32({3}), f32({3}), f32({35})}});

  OpDef params("layer_norm_grad_params");
  params.Doc("The gradients of layer_norm's scale and bias: the sums over rows of dy * (x - mean) * rstd and of dy.");
  DeclareRowNormGradParams(params, true);
  params.AddSample({{f32({6, 35}), f32({6, 35}), f32({6}), f32({6})}});
  return {op, input, params};
}

MSLUA_ROWS(layer_norm) { return RowNormForm(spec, true); }
MSLUA_ROWS(layer_norm_grad_input) { return RowNormGradInputForm(spec, true); }

MSLUA_ONNX(layer_norm) {
  const DType wide = c.TypeIn(1).dtype, type = c.TypeIn().dtype;
  const std::string y =
      c.Op("LayerNormalization", {type == wide ? c.In(0) : c.Cast(c.In(0), wide), c.In(1), c.In(2)},
           {{"axis", c.attrs().Int("axis")}, {"epsilon", static_cast<float>(c.attrs().Float("eps"))}});
  c.Result(type == wide ? y : c.Cast(y, type));
}

}  // namespace mslua
