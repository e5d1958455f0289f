// The ONNX form of a layer of recurrent cells over whole sequences.
#pragma once

#include <string>
#include <vector>

#include "core/onnx/lowering.h"

namespace mslua::onnx {

// Inputs x [t, n, g], w [g, h], b [g], h0 [n, h], c0 where `op` has it, lengths [n]; outputs y, hn and cn. Block i of
// ONNX's gates is block order[i] of ours. x holds the inputs times their weights: ONNX's weights of the inputs put its
// blocks into order.
void LowerRecurrent(Lowering& c, const std::string& op, const std::vector<int64_t>& order, NamedAttrs attrs);

}  // namespace mslua::onnx
