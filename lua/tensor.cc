#include "lua/tensor.h"

#include "absl/strings/str_cat.h"
#include "core/op/elementwise.h"

namespace mslua {

StatusOr<Tensor> NewTensor(TensorAllocator& allocator, const TensorType& type) {
  Tensor t{type, allocator.Allocate(type.bytes())};
  if (t.data == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for a tensor ", ToString(type)));
  return t;
}

StatusOr<Tensor> CastTensor(TensorAllocator& allocator, const Tensor& tensor, DType dtype) {
  if (tensor.type.dtype == dtype) return tensor;
  ASSIGN_OR_RETURN(Tensor out, NewTensor(allocator, {dtype, tensor.type.shape}));
  const TensorView from = tensor.view(), to = out.view();
  RETURN_IF_ERROR(EvaluateElementwise(CopyProgram(), {&from, 1}, {&to, 1}));
  return out;
}

}  // namespace mslua
