// Which operators compute in 16 bits in mixed precision.
#pragma once

#include <vector>

#include "absl/types/optional.h"
#include "core/op/op_def.h"
#include "core/step/trace.h"

namespace mslua {

// Casts operands of type kT of `op` to the type that the trace's mixed precision has them compute in. Gives the type of
// the results where that is another. `numbers` says which operands are numbers of the recipe.
absl::optional<DType> MixTypes(Trace& trace, const OpDef& op, const std::vector<bool>& numbers,
                               std::vector<Value>* values);

}  // namespace mslua
