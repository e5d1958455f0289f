// A traced network as an ONNX model for any batch size.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/graph/graph.h"
#include "core/onnx/model.h"

namespace mslua::onnx {

// The value of a parameter or state, in memory that outlives the model.
using ValueOfParameter = std::function<StatusOr<TensorView>(const std::string& name)>;

// Makes a model of one network that was traced twice, for batches of two sizes: what differs follows the batch.
// `weights`: the type in which the parameters of f32 are stored (f32, f16, bf16); the model computes in the types of
// the graph. INVALID_ARGUMENT names every operator that has no ONNX form, each with its line, and what depends on the
// batch in a way that ONNX cannot say.
StatusOr<Model> ExportGraph(const Graph& first, const Graph& second, DType weights, const ValueOfParameter& value_of);

// INVALID_ARGUMENT where what differs between the two traces does not follow the batch for the sizes of `others`,
// traces too, as where the network takes the lesser of the number of rows and 4.
Status CheckOtherSizes(const Graph& first, const Graph& second, absl::Span<const Graph* const> others,
                       const ValueOfParameter& value_of);

}  // namespace mslua::onnx
