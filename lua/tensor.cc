#include "lua/tensor.h"

#include "absl/strings/str_cat.h"

namespace mslua {

StatusOr<Tensor> NewTensor(TensorAllocator& allocator, const TensorType& type) {
  Tensor t{type, allocator.Allocate(type.bytes())};
  if (t.data == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for a tensor ", ToString(type)));
  return t;
}

StatusOr<Tensor> CastTensor(TensorAllocator& allocator, const Tensor& tensor, DType dtype) {
  if (tensor.type.dtype == dtype) return tensor;
  ASSIGN_OR_RETURN(Tensor out, NewTensor(allocator, {dtype, tensor.type.shape}));
  const int64_t n = tensor.type.elements();
  const void* from = tensor.data.get();
  if (IsInteger(tensor.type.dtype) && IsInteger(dtype)) {
    // Not through doubles, which lose the low bits of large i64.
    DispatchDType(tensor.type.dtype, [&](auto source) {
      DispatchDType(dtype, [&](auto target) {
        for (int64_t i = 0; i < n; ++i) {
          static_cast<decltype(target)*>(out.data.get())[i] =
              static_cast<decltype(target)>(static_cast<int64_t>(static_cast<const decltype(source)*>(from)[i]));
        }
      });
    });
    return out;
  }
  for (int64_t i = 0; i < n; ++i) StoreDouble(dtype, out.data.get(), i, LoadAsDouble(tensor.type.dtype, from, i));
  return out;
}

}  // namespace mslua
