#include "core/onnx/lowering.h"
#include "core/ops/declare/row_norm.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(rms_norm) {
  const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };

  OpDef op("rms_norm");
  op.Computes(Precision::kWide);
  op.Class("RmsNorm");
  op.Doc(
      "Root-mean-square normalisation (Zhang and Sennrich, 2019): y = x * rstd * scale with rstd = 1 / sqrt(mean of "
      "x^2 + eps) over the axes from `axis` to the last. x [.., d..]; scale [d..] in f32 (f64 for f64); gives y like "
      "x, and rstd [..].");
  DeclareRowNorm(op, false);
  op.Grad(RowNormGrad("rms_norm", false));
  op.AddSample({{f32({3, 5}), f32({5})}, {}, 0.5, 2});
  op.AddSample({{f32({2, 3, 37}), f32({37})}, {}, 0.5, 2});

  OpDef input("rms_norm_grad_input");
  input.Doc(
      "The gradient of rms_norm's x: rstd * (dy * scale - n * the row's mean of dy * scale * n), with n = x * rstd.");
  DeclareRowNormGradInput(input, false);
  input.AddSample({{f32({3, 35}), f32({3, 35}), f32({3}), f32({35})}});

  OpDef params("rms_norm_grad_params");
  params.Doc("The gradient of rms_norm's scale: the sum over rows of dy * x * rstd.");
  DeclareRowNormGradParams(params, false);
  params.AddSample({{f32({6, 35}), f32({6, 35}), f32({6})}});
  return {op, input, params};
}

MSLUA_ROWS(rms_norm) { return RowNormForm(spec, false); }
MSLUA_ROWS(rms_norm_grad_input) { return RowNormGradInputForm(spec, false); }

MSLUA_ONNX(rms_norm) {
  const DType wide = c.TypeIn(1).dtype, type = c.TypeIn().dtype;
  const std::string x = type == wide ? c.In(0) : c.Cast(c.In(0), wide);
  std::vector<int64_t> axes;
  for (int64_t d = c.attrs().Int("axis"); d < c.TypeIn().rank(); ++d) axes.push_back(d);
  const std::string mean = c.Op("ReduceMean", {c.Op("Mul", {x, x})}, {{"axes", axes}, {"keepdims", int64_t{1}}});
  const std::string root = c.Op("Sqrt", {c.Op("Add", {mean, c.Number(c.attrs().Float("eps"), wide)})});
  const std::string y = c.Op("Mul", {c.Op("Div", {x, root}), c.In(1)});
  c.Result(type == wide ? y : c.Cast(y, type));
}

}  // namespace mslua
