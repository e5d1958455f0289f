#include "core/op/elementwise.h"

#include <algorithm>
#include <vector>

namespace mslua {
namespace {

constexpr int64_t kTile = 256;

// Copies elements [begin, begin + n) of the broadcast `view`, in the output's order, to `out`.
template <class C>
void LoadTile(const TensorView& view, const Shape& shape, int64_t begin, int64_t n, C* out) {
  DispatchDType(view.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* data = view.as<T>();
    if (view.type.shape == shape) {
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(static_cast<ComputeType<T>>(data[begin + i]));
      return;
    }
    if (view.type.elements() == 1) {
      std::fill_n(out, n, static_cast<C>(static_cast<ComputeType<T>>(data[0])));
      return;
    }
    const int64_t rank = static_cast<int64_t>(shape.size()), own_rank = view.type.rank();
    const Shape strides = RowMajorStrides(view.type.shape);
    const auto step = [&](int64_t d) {  // of the view, along dimension d of the output
      const int64_t own = d - (rank - own_rank);
      return own >= 0 && view.type.shape[own] != 1 ? strides[own] : 0;
    };
    for (int64_t i = 0; i < n;) {
      int64_t rest = begin + i, offset = 0;
      const int64_t run = std::min(n - i, shape[rank - 1] - rest % shape[rank - 1]);
      for (int64_t d = rank - 1; d >= 0; --d) {
        offset += rest % shape[d] * step(d);
        rest /= shape[d];
      }
      for (int64_t k = 0; k < run; ++k)
        out[i + k] = static_cast<C>(static_cast<ComputeType<T>>(data[offset + k * step(rank - 1)]));
      i += run;
    }
  });
}

template <class C>
void StoreTile(const TensorView& view, int64_t begin, int64_t n, const C* in) {
  DispatchDType(view.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* data = view.as<T>() + begin;
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, bool>)
        data[i] = in[i] != 0;
      else
        data[i] = static_cast<T>(static_cast<ComputeType<T>>(in[i]));
    }
  });
}

template <class C>
void Evaluate(const ScalarProgram& p, absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs) {
  const Shape& shape = outputs[0].type.shape;
  const int64_t total = NumElements(shape);
  std::vector<std::vector<C>> in(inputs.size(), std::vector<C>(kTile)), out(outputs.size(), std::vector<C>(kTile));
  std::vector<const C*> in_ptr;
  std::vector<C*> out_ptr;
  for (auto& v : in) in_ptr.push_back(v.data());
  for (auto& v : out) out_ptr.push_back(v.data());
  std::vector<C> workspace(p.code.size() * kTile);
  for (int64_t begin = 0; begin < total; begin += kTile) {
    const int64_t n = std::min(kTile, total - begin);
    for (size_t i = 0; i < inputs.size(); ++i) LoadTile(inputs[i], shape, begin, n, in[i].data());
    EvaluateTile<C>(p, n, in_ptr.data(), out_ptr.data(), workspace.data());
    for (size_t o = 0; o < outputs.size(); ++o) StoreTile(outputs[o], begin, n, out[o].data());
  }
}

}  // namespace

DType ElementwiseComputeType(absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs) {
  bool f64 = false, f = false, i64 = false;
  for (const auto& span : {inputs, outputs}) {
    for (const TensorView& v : span) {
      f64 |= v.type.dtype == DType::kF64;
      f |= IsFloat(v.type.dtype);
      i64 |= v.type.dtype == DType::kI64;
    }
  }
  return f64 ? DType::kF64 : f ? DType::kF32 : i64 ? DType::kI64 : DType::kI32;
}

Status EvaluateElementwise(const ScalarProgram& p, absl::Span<const TensorView> inputs,
                           absl::Span<const TensorView> outputs) {
  switch (ElementwiseComputeType(inputs, outputs)) {
    case DType::kF64:
      Evaluate<double>(p, inputs, outputs);
      break;
    case DType::kF32:
      Evaluate<float>(p, inputs, outputs);
      break;
    case DType::kI64:
      Evaluate<int64_t>(p, inputs, outputs);
      break;
    default:
      Evaluate<int32_t>(p, inputs, outputs);
      break;
  }
  return absl::OkStatus();
}

}  // namespace mslua
