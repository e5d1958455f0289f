// DispatchDType for operators over float types: calls f(T{}) with the storage type of `t`, which is a float.
#pragma once

#include "core/base/dtype.h"

namespace mslua {

template <class F>
decltype(auto) DispatchFloat(DType t, F&& f) {
  switch (t) {
    case DType::kF64:
      return f(double{});
    case DType::kBF16:
      return f(BF16{});
    case DType::kF16:
      return f(F16{});
    default:
      return f(float{});
  }
}

}  // namespace mslua
