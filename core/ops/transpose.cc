#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Copies elements of `kSize` bytes; the two innermost moved dimensions go in blocks, so that both sides stay in cache
// lines.
template <class T>
void Move(const T* x, const Shape& from, const std::vector<int64_t>& perm, T* y) {
  const int64_t rank = static_cast<int64_t>(from.size());
  Shape to;
  for (int64_t p : perm) to.push_back(from[p]);
  const Shape strides = RowMajorStrides(from);
  Shape moved;  // the input's stride along each output dimension
  for (int64_t p : perm) moved.push_back(strides[p]);
  if (rank == 0) {
    y[0] = x[0];
    return;
  }
  const int64_t inner = to[rank - 1], inner_stride = moved[rank - 1];
  const int64_t rows = rank > 1 ? to[rank - 2] : 1, row_stride = rank > 1 ? moved[rank - 2] : 0;
  const int64_t outer = inner * rows == 0 ? 0 : NumElements(to) / (inner * rows);
  constexpr int64_t kBlock = 16;
  const int64_t row_blocks = (rows + kBlock - 1) / kBlock;
  ParallelFor(outer * row_blocks, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, inner * std::min(rows, kBlock))),
              [&](int64_t begin, int64_t end) {
                for (int64_t t = begin; t < end; ++t) {
                  int64_t rest = t / row_blocks, base = 0;
                  for (int64_t d = rank - 3; d >= 0; --d) {
                    base += rest % to[d] * moved[d];
                    rest /= to[d];
                  }
                  const int64_t r0 = t % row_blocks * kBlock, r1 = std::min(rows, r0 + kBlock);
                  T* out = y + t / row_blocks * rows * inner;
                  for (int64_t c0 = 0; c0 < inner; c0 += kBlock) {
                    const int64_t c1 = inner_stride == 1 ? inner : std::min(inner, c0 + kBlock);
                    for (int64_t r = r0; r < r1; ++r) {
                      const T* source = x + base + r * row_stride;
                      for (int64_t c = c0; c < c1; ++c) out[r * inner + c] = source[c * inner_stride];
                    }
                    if (inner_stride == 1) break;
                  }
                }
              });
}

Status Run(const Attrs& attrs, const TensorType& type, const void* x, void* y) {
  const auto& perm = attrs.Ints("perm");
  switch (SizeOf(type.dtype)) {
    case 1:
      Move(static_cast<const uint8_t*>(x), type.shape, perm, static_cast<uint8_t*>(y));
      break;
    case 2:
      Move(static_cast<const uint16_t*>(x), type.shape, perm, static_cast<uint16_t*>(y));
      break;
    case 4:
      Move(static_cast<const uint32_t*>(x), type.shape, perm, static_cast<uint32_t*>(y));
      break;
    default:
      Move(static_cast<const uint64_t*>(x), type.shape, perm, static_cast<uint64_t*>(y));
      break;
  }
  return absl::OkStatus();
}

}  // namespace

MSLUA_OPERATOR(transpose) {
  OpDef op("transpose");
  op.Class("Transpose").Doc("Dimensions in another order: dimension d of the result is dimension perm[d] of x.");
  op.Input("x").AllTypes().Required("perm", AttrKind::kAxes, "every axis of x once");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) {
    if (static_cast<int64_t>(a.Ints("perm").size()) == in[0].rank()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("perm names ", a.Ints("perm").size(), " axes, expected ", in[0].rank()));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    std::string left, right;
    for (int64_t d = 0; d < in[0].rank(); ++d) {
      absl::StrAppend(&left, "d", d, " ");
      absl::StrAppend(&right, "d", a.Ints("perm")[d], " ");
    }
    return absl::StrCat(left, "-> ", right);
  });
  op.Grad([](GradContext& c) {
    const auto& perm = c.attrs.Ints("perm");
    std::vector<int64_t> inverse(perm.size());
    for (size_t d = 0; d < perm.size(); ++d) inverse[perm[d]] = static_cast<int64_t>(d);
    return std::vector<Value>{Transpose(c.g, c.dy[0], inverse)};
  });
  op.Reference([](const OpCall& c) { return Run(c.attrs, c.inputs[0].type, c.inputs[0].data, c.outputs[0].data); });
  op.OnDevice([](const OpSpec& spec) {
    const Shape own = RowMajorStrides(spec.inputs[0].shape);
    std::vector<int64_t> strides;
    for (int64_t d : spec.attrs.Ints("perm")) strides.push_back(own[static_cast<size_t>(d)]);
    const std::string from = StridedIndex("i", spec.outputs[0].shape, strides);
    return OneStep(EachElement(spec.outputs[0].elements(), absl::StrCat("  y0[i] = x0[", from, "];")));
  });
  op.AddSample({{{DType::kF32, {3, 4}}}, {{"perm", std::vector<int64_t>{1, 0}}}});
  op.AddSample({{{DType::kF32, {2, 3, 4, 5}}}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}}});
  return {op};
}

MSLUA_ONNX(transpose) { c.Result(c.Transpose(c.In(0), c.attrs().Ints("perm"))); }

}  // namespace mslua
