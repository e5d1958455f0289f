// Eager tensors: immutable values in memory that Lua holds as userdata.
#pragma once

#include "core/base/status.h"
#include "core/base/tensor.h"
#include "lua/allocator.h"

namespace mslua {

// Memory with undefined contents, to be filled before anybody else sees it. An error when there is not enough.
StatusOr<Tensor> NewTensor(TensorAllocator& allocator, const TensorType& type);
// As the operator cast; shares memory when the type is the same.
StatusOr<Tensor> CastTensor(TensorAllocator& allocator, const Tensor& tensor, DType dtype);

}  // namespace mslua
