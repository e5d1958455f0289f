// Tensors of Lua arguments.
#pragma once

#include "absl/types/optional.h"
#include "lua/object.h"
#include "lua/session.h"
#include "lua/tensor.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// A Tensor, a Parameter's value (copied), a number, a boolean or a nested list of them as a tensor. `dtype` absent: a
// tensor's own, bool for booleans, else f32. A tensor of another dtype is cast.
StatusOr<Tensor> ReadTensor(Session& session, lua_State* L, int index, absl::optional<DType> dtype,
                            absl::string_view what);

// Pushes an element: a number, or a boolean. InvalidArgument: an i64 that a Lua number does not hold exactly.
Status PushElement(lua_State* L, const TensorView& tensor, int64_t i);

}  // namespace mslua
