// The loops that convert become vectors. Before the headers: what they define is inlined only where it is compiled in
// the same way.
#if !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

#include "core/op/elementwise.h"

#include <algorithm>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"

namespace mslua {
namespace {

constexpr int64_t kTile = 512;

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
      const T* const from = data + offset;
      if (step(rank - 1) == 0)
        std::fill_n(out + i, run, static_cast<C>(static_cast<ComputeType<T>>(*from)));
      else
        for (int64_t k = 0; k < run; ++k) out[i + k] = static_cast<C>(static_cast<ComputeType<T>>(from[k]));
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

// Elements [begin, end). What has the arithmetic's own type, and lies as the output does, is not copied.
template <class C>
void EvaluateRange(const ScalarProgram& p, absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs,
                   int64_t begin, int64_t end) {
  const Shape& shape = outputs[0].type.shape;
  const auto is_own = [&](const TensorView& v) { return v.type.dtype == DTypeOf<C>::value && v.type.shape == shape; };
  std::vector<char> copied(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) copied[i] = !is_own(inputs[i]);
  // An output may lie over an input, which is then written before another result that the input is.
  for (const int32_t r : p.results) {
    if (p.code[r].op == ScalarOp::kInput) copied[p.code[r].args[0]] = true;
  }
  std::vector<std::vector<C>> in(inputs.size()), out(outputs.size());
  std::vector<const C*> in_ptr(inputs.size());
  std::vector<C*> out_ptr(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (copied[i]) in[i].resize(kTile);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_own(outputs[o])) out[o].resize(kTile);
  }
  std::vector<C> workspace(p.code.size() * kTile);
  for (int64_t at = begin; at < end; at += kTile) {
    const int64_t n = std::min(kTile, end - at);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (copied[i]) LoadTile(inputs[i], shape, at, n, in[i].data());
      in_ptr[i] = copied[i] ? in[i].data() : inputs[i].as<C>() + at;
    }
    for (size_t o = 0; o < outputs.size(); ++o) out_ptr[o] = out[o].empty() ? outputs[o].as<C>() + at : out[o].data();
    EvaluateTile<C>(p, n, in_ptr.data(), out_ptr.data(), workspace.data());
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!out[o].empty()) StoreTile(outputs[o], at, n, out[o].data());
    }
  }
}

template <class C>
void Evaluate(const ScalarProgram& p, absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs) {
  int64_t cost = 1;
  for (const ScalarInstr& i : p.code) cost += CostOf(i.op);
  const int64_t total = outputs[0].type.elements();
  ParallelFor(CeilDiv(total, kTile), std::max<int64_t>(1, (int64_t{64} << 10) / cost / kTile),
              [&](int64_t first, int64_t last) {
                EvaluateRange<C>(p, inputs, outputs, first * kTile, std::min(total, last * kTile));
              });
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
