// Values of parameters of which the ranks keep parts: read whole, and what ranks compare before they compute together.
#pragma once

#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/step/parameter.h"
#include "lua/session.h"

namespace mslua {

// A copy of a parameter's value, whole. Where the ranks keep parts of it, all of them (all of a pipeline stage) call
// this together, and each gets the whole.
StatusOr<Tensor> WholeValue(Session& session, ParameterData& p);

// Entries of the module: core.is_part, core.gather_texts and core.check_same.
void OpenWholeValues(lua_State* L);

}  // namespace mslua
