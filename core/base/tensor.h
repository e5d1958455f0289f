// Tensors in memory of their own.
#pragma once

#include <memory>
#include <string>

#include "core/base/shape.h"

namespace mslua {

// Row-major and dense. Copies share memory.
struct Tensor {
  TensorType type;
  std::shared_ptr<void> data;
  TensorView view() const { return {type, data.get()}; }
};

// Part `index` (from 0) of the first dimension; shares memory.
Tensor SubTensor(const Tensor& tensor, int64_t index);
// The same elements under another shape of equal size; shares memory.
Tensor WithShape(const Tensor& tensor, Shape shape);

// As NumPy prints: "[[0. 1.]\n [2. 3.]]"; a number for a scalar. Over 1000 elements, the edges and "...".
std::string TensorText(const TensorView& tensor);

}  // namespace mslua
