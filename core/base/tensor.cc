#include "core/base/tensor.h"

#include <utility>

namespace mslua {

Tensor SubTensor(const Tensor& tensor, int64_t index) {
  Tensor part;
  part.type.dtype = tensor.type.dtype;
  part.type.shape.assign(tensor.type.shape.begin() + 1, tensor.type.shape.end());
  part.data = std::shared_ptr<void>(tensor.data, static_cast<char*>(tensor.data.get()) + index * part.type.bytes());
  return part;
}

Tensor WithShape(const Tensor& tensor, Shape shape) { return {{tensor.type.dtype, std::move(shape)}, tensor.data}; }

}  // namespace mslua
