// For the files of this folder: each defines one operator and, where they are its own, its gradient's
// operators. The build finds the file by its name (docs/howto/add_an_operator.md).
#pragma once

#include <vector>

#include "core/graph/builder.h"
#include "core/op/op_def.h"

// core/ops/tanh.cc:  MSLUA_OPERATOR(tanh) { return {OpDef("tanh")...}; }
#define MSLUA_OPERATOR(name) std::vector<OpDef> Define_##name()

namespace mslua {

// An elementwise operator over inputs of one shape: rule, output type, reference kernel and fusion follow from
// the formula. Gradient: one formula an input (GradFormula), or none for a gradient of zero.
inline OpDef ElementwiseOp(std::string name, std::vector<std::string> inputs, std::string formula,
                           std::vector<std::string> gradient = {}) {
  OpDef op(std::move(name));
  std::string rule = "*r";
  for (size_t i = 0; i < inputs.size(); ++i) {
    op.Input(inputs[i]);
    if (i > 0) rule += ", *r";
  }
  op.Rule(rule + " -> *r");
  op.formula = {std::move(formula)};
  if (gradient.empty())
    op.ZeroGrad();
  else
    op.Grad(GradFormula(std::move(gradient)));
  return op;
}

// The same with a bool result.
inline OpDef ComparisonOp(std::string name, std::string formula) {
  OpDef op = ElementwiseOp(std::move(name), {"a", "b"}, std::move(formula));
  op.AllTypes().Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    if (in[0].shape != in[1].shape) return absl::InvalidArgumentError("shapes differ");
    TensorType t = in[0];
    t.dtype = DType::kBool;
    return std::vector<TensorType>{t};
  });
  op.AddSample({{{DType::kF32, {3, 4}}, {DType::kF32, {3, 4}}}});
  return op;
}

}  // namespace mslua
