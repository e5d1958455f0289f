// The arithmetic of reductions: the same bits from every backend.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "collectives/communicator.h"

namespace mslua {

// outs[j][i] = sources[0][i] op sources[1][i] op ... for every j and 0 <= i < count, combined from left to right;
// 16-bit floats in f32, rounded once. kMean divides by sources.size(). At most 64 sources. An output may be exactly
// one of the sources and is otherwise apart from them. bool: elements are 0 or 1.
void Reduce(ReduceOp op, DType dtype, absl::Span<const void* const> sources, absl::Span<void* const> outs,
            int64_t count);

}  // namespace mslua
