// What layer_norm and rms_norm share: rows are scaled to unit variance, after their mean is taken off (centred) or not.
// Statistics and parameters are f32 (f64 for f64), whatever x's 16 bits.
//
//   forward           x, scale[, bias]           ->  y[, mean], rstd
//   gradient of x     dy, x[, mean], rstd, scale ->  dx
//   of parameters     dy, x[, mean], rstd        ->  dscale[, dbias]
//
// What is in brackets exists when rows are centred. Attribute `axis` is the first of the axes that make a row.
#pragma once

#include "core/graph/builder.h"
#include "core/op/elementwise.h"
#include "core/op/op_def.h"

namespace mslua {

// What means and deviations of rows of `x` are kept in: f64 for f64, else f32.
DType StatisticsType(DType x);

// Declares operands, results, rule, check, reference and Highway kernels of the three operators, and the gradients of
// the second and third.
void DeclareRowNorm(OpDef& op, bool centred);
void DeclareRowNormGradInput(OpDef& op, bool centred);
void DeclareRowNormGradParams(OpDef& op, bool centred);
// The formulas of the first two.
StatusOr<RowForm> RowNormForm(const OpSpec& spec, bool centred);
StatusOr<RowForm> RowNormGradInputForm(const OpSpec& spec, bool centred);

// The gradient of the first: emits the other two, called `name`_grad_input and `name`_grad_params.
GradFn RowNormGrad(std::string name, bool centred);

}  // namespace mslua
