// Eager tensors: immutable values in memory that Lua holds as userdata.
#pragma once

#include <memory>
#include <string>

#include "core/base/shape.h"
#include "core/base/status.h"

struct lua_State;

namespace mslua {

class Session;

// Row-major and dense. Copies share memory.
struct Tensor {
  TensorType type;
  std::shared_ptr<void> data;
  TensorView view() const { return {type, data.get()}; }
};

// Memory with undefined contents, to be filled before anybody else sees it. An error when there is not enough.
StatusOr<Tensor> NewTensor(Session& session, const TensorType& type);
// Part `index` (from 0) of the first dimension; shares memory.
Tensor SubTensor(const Tensor& tensor, int64_t index);
// The same elements under another shape of equal size; shares memory.
Tensor WithShape(const Tensor& tensor, Shape shape);
// Element by element; shares memory when the type is the same.
StatusOr<Tensor> CastTensor(Session& session, const Tensor& tensor, DType dtype);

// As NumPy prints: "[[0. 1.]\n [2. 3.]]"; a number for a scalar. Over 1000 elements, the edges and "...".
std::string TensorText(const TensorView& tensor);

}  // namespace mslua
