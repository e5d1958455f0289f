// The type in which a gradient travels between ranks, and is summed: gradient_fp32_sync.
#pragma once

#include "core/graph/builder.h"

namespace mslua {

// What of gradient `d` travels. With `fp32_sync` d in f32, where it has 16 bits. Without, d as it was computed: where
// the last thing that mixed precision did was to cast 16 bits to f32, what it was before.
inline Value ToSync(GraphBuilder& g, Value d, bool fp32_sync) {
  if (!d.valid()) return d;
  const DType dtype = g.TypeOf(d).dtype;
  if (fp32_sync) return SizeOf(dtype) == 2 ? Cast(g, d, DType::kF32) : d;
  const Node& made = g.graph().nodes[d.node];
  const bool widened = dtype == DType::kF32 && made.op->name == "cast" && SizeOf(g.TypeOf(made.inputs[0]).dtype) == 2;
  return widened && IsFloat(g.TypeOf(made.inputs[0]).dtype) ? made.inputs[0] : d;
}

}  // namespace mslua
