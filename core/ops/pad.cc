#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/number.h"
#include "core/base/parallel_for.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

// The padding of dimension d. Lists that are empty are zeros.
struct Padding {
  int64_t low, high, interior;
  bool none() const { return low == 0 && high == 0 && interior == 0; }
};
Padding PaddingOf(const Attrs& attrs, size_t d) {
  const auto at = [&](const char* name) { return attrs.Ints(name).empty() ? int64_t{0} : attrs.Ints(name)[d]; };
  return {at("low"), at("high"), at("interior")};
}

std::string PadRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  std::string left, right;
  for (int64_t d = 0; d < in[0].rank(); ++d) {
    const bool none = PaddingOf(attrs, d).none();
    absl::StrAppend(&left, none ? "d" : "!x", d, " ");
    absl::StrAppend(&right, none ? "d" : "!y", d, " ");
  }
  return absl::StrCat(left, "-> ", right);
}

Status CheckPadding(const Attrs& a, absl::Span<const TensorType> in) {
  for (const char* name : {"low", "high", "interior"}) {
    const auto& list = a.Ints(name);
    if (!list.empty() && static_cast<int64_t>(list.size()) != in[0].rank()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has ", list.size(), " numbers, expected ", in[0].rank()));
    }
    for (int64_t n : list) {
      if (n < 0)
        return absl::InvalidArgumentError(
            absl::StrCat(name, " has ", n, ", expected no negative number (to cut off, ops.StridedSlice)"));
    }
  }
  return CheckNumber("value", in[0].dtype, a.Float("value"));
}

StatusOr<std::vector<TensorType>> PaddedType(const Attrs& a, absl::Span<const TensorType> in) {
  TensorType y = in[0];
  for (size_t d = 0; d < y.shape.size(); ++d) {
    const Padding p = PaddingOf(a, d);
    if (HasTooManyElements({y.shape[d], p.interior}))
      return absl::InvalidArgumentError(absl::StrCat("interior ", p.interior, " gives too many elements"));
    y.shape[d] = p.low + p.high + y.shape[d] + (y.shape[d] > 0 ? (y.shape[d] - 1) * p.interior : 0);
  }
  return std::vector<TensorType>{y};
}

std::vector<Value> PadGrad(GradContext& c) {
  const Shape x = c.g.TypeOf(c.x(0)).shape;
  std::vector<int64_t> begin, end, strides;
  for (size_t d = 0; d < x.size(); ++d) {
    const Padding p = PaddingOf(c.attrs, d);
    begin.push_back(p.low);
    end.push_back(x[d] > 0 ? p.low + (x[d] - 1) * (p.interior + 1) + 1 : p.low);
    strides.push_back(p.interior + 1);
  }
  return {c.g.Op("strided_slice", {c.dy[0]}, {{"begin", begin}, {"end", end}, {"strides", strides}})};
}

// Writes each element once, row after row: a row is the result's last padded dimension `last` with all that follow it.
template <class T>
void WritePadded(const Attrs& attrs, const Shape& x_shape, const T* x, const Shape& y_shape, size_t last, T value,
                 T* y) {
  const Shape strides = RowMajorStrides(x_shape);
  std::vector<Padding> paddings;
  for (size_t d = 0; d <= last; ++d) paddings.push_back(PaddingOf(attrs, d));
  const Padding& p = paddings[last];
  const int64_t inner = strides[last], size = x_shape[last], row = y_shape[last] * inner;
  const int64_t rows = NumElements(absl::MakeConstSpan(y_shape).first(last));
  ParallelFor(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, row)), [&](int64_t begin, int64_t end) {
    Shape at(last, 0);  // the row's place
    for (int64_t d = static_cast<int64_t>(last) - 1, rest = begin; d >= 0; --d) {
      at[d] = rest % y_shape[d];
      rest /= y_shape[d];
    }
    for (T *to = y + begin * row, *stop = y + end * row; to != stop;) {
      bool inside = true;
      int64_t offset = 0;
      for (size_t d = 0; d < last; ++d) {
        const int64_t place = at[d] - paddings[d].low, each = paddings[d].interior + 1;
        inside &= place >= 0 && place < x_shape[d] * each && (each == 1 || place % each == 0);
        offset += (each == 1 ? place : place / each) * strides[d];
      }
      if (!inside || size == 0) {
        to = std::fill_n(to, row, value);
      } else {
        to = std::fill_n(to, p.low * inner, value);
        if (p.interior == 0) {
          to = std::copy_n(x + offset, size * inner, to);
        } else {
          for (int64_t i = 0; i < size; ++i) {
            if (i > 0) to = std::fill_n(to, p.interior * inner, value);
            to = std::copy_n(x + offset + i * inner, inner, to);
          }
        }
        to = std::fill_n(to, p.high * inner, value);
      }
      for (int64_t d = static_cast<int64_t>(last) - 1; d >= 0 && ++at[d] == y_shape[d]; --d) at[d] = 0;
    }
  });
}

Status PadReference(const OpCall& c) {
  const TensorType &x = c.inputs[0].type, &y = c.outputs[0].type;
  if (y.elements() == 0) return absl::OkStatus();
  size_t padded = y.shape.size();  // the last padded dimension
  for (size_t d = 0; d < y.shape.size(); ++d) {
    if (!PaddingOf(c.attrs, d).none()) padded = d;
  }
  if (padded == y.shape.size()) {
    StridedCopy(SizeOf(x.dtype), x.shape, c.inputs[0].data, RowMajorStrides(x.shape), c.outputs[0].data,
                RowMajorStrides(y.shape));
    return absl::OkStatus();
  }
  const auto write = [&](auto zero) {
    using T = decltype(zero);
    T value;
    StoreDouble(y.dtype, &value, 0, c.attrs.Float("value"));
    WritePadded(c.attrs, x.shape, c.inputs[0].as<T>(), y.shape, padded, value, c.outputs[0].as<T>());
  };
  switch (SizeOf(x.dtype)) {
    case 1:
      write(uint8_t{});
      break;
    case 2:
      write(uint16_t{});
      break;
    case 4:
      write(uint32_t{});
      break;
    default:
      write(uint64_t{});
  }
  return absl::OkStatus();
}

StatusOr<DeviceProgram> PadOnDevice(const OpSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  Shape strides = RowMajorStrides(spec.outputs[0].shape);
  int64_t first = 0;
  for (size_t d = 0; d < x.size(); ++d) {
    const Padding p = PaddingOf(spec.attrs, d);
    first += p.low * strides[d];
    strides[d] *= p.interior + 1;
  }
  DeviceProgram program;
  program.steps.push_back(EachElement(spec.outputs[0].elements(),
                                      absl::StrCat("  Set(y0[i], ", NumberText(spec.attrs.Float("value")), ");")));
  program.steps.push_back(
      EachElement(NumElements(x), absl::StrCat("  y0[", StridedIndex("i", x, strides, first), "] = x0[i];")));
  return program;
}

}  // namespace

// The terms are those of XLA's Pad (openxla.org/xla/operation_semantics).
MSLUA_OPERATOR(pad) {
  OpDef op("pad");
  op.Class("Pad").Doc(
      "x [..] with `value` around it: dimension d gets low[d] before, high[d] after and interior[d] between two "
      "elements.");
  op.Input("x").AllTypes();
  op.Attr("low", AttrKind::kInts, std::vector<int64_t>{}, "elements before each dimension; none: 0");
  op.Attr("high", AttrKind::kInts, std::vector<int64_t>{}, "elements after each dimension; none: 0");
  op.Attr("interior", AttrKind::kInts, std::vector<int64_t>{}, "elements between two neighbours; none: 0");
  op.Attr("value", AttrKind::kFloat, 0.0, "what the padding is");
  op.Check(CheckPadding);
  op.Rule(PadRule);
  op.Infer(PaddedType);
  op.Grad(PadGrad);
  op.Reference(PadReference);
  op.OnDevice(PadOnDevice);
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {3, 4}}}, {{"low", Ints{0, 1}}, {"high", Ints{0, 2}}, {"value", 2.0}}});
  op.AddSample({{{DType::kF32, {3, 4}}}, {{"low", Ints{1, 0}}, {"high", Ints{0, 0}}, {"interior", Ints{2, 0}}}});
  return {op};
}

MSLUA_ONNX(pad) {
  std::vector<int64_t> before, after;
  for (size_t d = 0; d < static_cast<size_t>(c.TypeIn().rank()); ++d) {
    const Padding p = PaddingOf(c.attrs(), d);
    if (p.interior != 0) return c.Fail("ONNX has no padding between elements (interior)");
    before.push_back(p.low);
    after.push_back(p.high);
  }
  before.insert(before.end(), after.begin(), after.end());
  c.Result(c.Op("Pad", {c.In(0), c.Ints(before), c.Number(c.attrs().Float("value"), c.TypeIn().dtype)}));
}

}  // namespace mslua
