#include <algorithm>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/kernels/dispatch.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/declare/along_axis.h"
#include "core/ops/declare/scan.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Products of integers are modulo their range.
template <class T>
T Product(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

Status CumulativeProduct(const OpCall& c) {
  const AxisView v = AxisView::Of(c.inputs[0].type.shape, c.attrs.Int("axis"));
  DispatchDType(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = ScanType<T>;
    if constexpr (!std::is_same_v<T, bool>) {
      const T* x = c.inputs[0].as<T>();
      const auto element = [x](int64_t i) { return static_cast<C>(x[i]); };
      Scan<T>(v, c.attrs, c.outputs[0].as<T>(), C{1},
              [&](C before, int64_t i, bool first) { return first ? element(i) : Product<C>(before, element(i)); });
    }
  });
  return absl::OkStatus();
}

Status Recurrence(const OpCall& c) {
  const AxisView v = AxisView::Of(c.inputs[0].type.shape, c.attrs.Int("axis"));
  DispatchFloat(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *a = c.inputs[0].as<T>(), *b = c.inputs[1].as<T>();
    Scan<T>(v, c.attrs, c.outputs[0].as<T>(), 0.0, [a, b](double before, int64_t i, bool first) {
      return first ? static_cast<double>(b[i]) : static_cast<double>(a[i]) * before + static_cast<double>(b[i]);
    });
  });
  return absl::OkStatus();
}

// `first` and `next` are text of the element `at` and the state `before`.
DeviceProgram ScanOnDevice(const OpSpec& spec, const char* none, const char* first, const char* next) {
  const DType type = spec.inputs[0].dtype;
  const AxisView v = AxisView::Of(spec.inputs[0].shape, spec.attrs.Int("axis"));
  return OneStep(
      EachElement(v.outer * v.inner, absl::StrCat("  typedef ",
                                                  IsFloat(type)         ? "double"
                                                  : type == DType::kI64 ? "u64"
                                                                        : "u32",
                                                  " C;\n", Constant("size", v.size), Constant("inner", v.inner),
                                                  "  constexpr bool exclusive = ", spec.attrs.Bool("exclusive"),
                                                  ", reverse = ", spec.attrs.Bool("reverse"), ";\n", R"cuda(
  const i64 begin = i / inner * size * inner + i % inner;
  C before = )cuda",
                                                  none, R"cuda(;
  for (i64 k = 0; k < size; ++k) {
    const i64 at = begin + (reverse ? size - 1 - k : k) * inner;
    const C after = k == 0 ? (C))cuda",
                                                  first, " : ", next, R"cuda(;
    Set(y0[at], )cuda",
                                                  IsFloat(type)         ? ""
                                                  : type == DType::kI64 ? "(i64)"
                                                                        : "(int)",
                                                  R"cuda((exclusive ? before : after));
    before = after;
  }
)cuda")));
}

void DeclareScan(OpDef& op) {
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the dimension to go along")
      .Attr("exclusive", AttrKind::kBool, false, "the result of the elements before each one")
      .Attr("reverse", AttrKind::kBool, false, "from the last one on");
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string dims = DimsAlongAxis(a, in[0]);
    return absl::StrCat(dims, in.size() > 1 ? ", " + dims : "", "-> ", dims);
  });
}

// The other direction; exclusive or not.
Attrs Backward(const Attrs& attrs, bool exclusive) {
  Attrs back = attrs;
  return back.Set("reverse", !attrs.Bool("reverse")).Set("exclusive", exclusive);
}

// x with each element at the place of the one before it, in the direction of `attrs`.
Value Following(GraphBuilder& g, Value x, const Attrs& attrs) {
  using Ints = std::vector<int64_t>;
  const int64_t places = attrs.Bool("reverse") ? 1 : -1;
  return g.Op("roll", {x}, {{"shift", Ints{places}}, {"axis", Ints{attrs.Int("axis")}}});
}

// y_i = x_1 .. x_i: the derivative by x_j is the product before it, times s_j = dy_j + x_(j+1) s_(j+1). No division:
// it is right at zeros.
std::vector<Value> ProductGrad(GradContext& c) {
  const DType own = c.g.TypeOf(c.x(0)).dtype, computed = ArithmeticType(own);
  const Value x = Cast(c.g, c.x(0), computed), dy = Cast(c.g, c.dy[0], computed);
  Attrs exclusive = c.attrs;
  exclusive.Set("exclusive", true);
  const Value before = c.g.Op("cumprod", {x}, exclusive);
  const Value after = c.attrs.Bool("exclusive")
                          ? c.g.Op("linear_recurrence", {x, dy}, Backward(c.attrs, true))
                          : c.g.Op("linear_recurrence", {Following(c.g, x, c.attrs), dy}, Backward(c.attrs, false));
  return {Cast(c.g, Mul(c.g, before, after), own)};
}

// The gradient g_i of h_i = a_i h_(i-1) + b_i is dy_i + a_(i+1) g_(i+1); of an exclusive one dy_(i+1) stands there. It
// is that of b_i, and times h_(i-1) that of a_i.
std::vector<Value> RecurrenceGrad(GradContext& c) {
  if (c.attrs.Bool("exclusive")) {
    const Value g = c.g.Op("linear_recurrence", {c.x(0), c.dy[0]}, Backward(c.attrs, true));
    return {Mul(c.g, g, c.outputs[0]), g};
  }
  Attrs exclusive = c.attrs;
  exclusive.Set("exclusive", true);
  const Value g = c.g.Op("linear_recurrence", {Following(c.g, c.x(0), c.attrs), c.dy[0]}, Backward(c.attrs, false));
  return {Mul(c.g, g, c.g.Op("linear_recurrence", {c.x(0), c.x(1)}, exclusive)), g};
}

}  // namespace

MSLUA_OPERATOR(cumprod) {
  OpDef op("cumprod");
  op.Class("CumProd").Doc(
      "Each element along `axis` becomes the product of those up to it. Integers keep their type and wrap round: cast "
      "uint8 to int32 first.");
  op.Input("x").NumericTypes();
  DeclareScan(op);
  op.Grad(ProductGrad).Reference(CumulativeProduct).InPlace(0, 0);
  op.OnDevice([](const OpSpec& spec) { return ScanOnDevice(spec, "1", "Get(x0[at])", "before * (C)Get(x0[at])"); });

  OpDef recurrence("linear_recurrence");
  recurrence.Doc(
      "y_i = a_i y_(i-1) + b_i along `axis`, from y_1 = b_1 on: a scan, as of state space models; cumsum is that of "
      "a = 1. With `exclusive` y_(i-1) stands at i, and 0 at the first place.");
  recurrence.Input("a").Input("b");
  DeclareScan(recurrence);
  recurrence.Grad(RecurrenceGrad).Reference(Recurrence).InPlace(0, 0).InPlace(0, 1);
  recurrence.OnDevice([](const OpSpec& spec) {
    return ScanOnDevice(spec, "0", "Get(x1[at])", "(C)Get(x0[at]) * before + (C)Get(x1[at])");
  });

  const auto add_samples = [](OpDef& to, size_t operands) {
    const auto sample = [&](Shape shape, Attrs attrs) {
      to.AddSample({std::vector<TensorType>(operands, {DType::kF32, std::move(shape)}), std::move(attrs)});
    };
    sample({3, 5}, {});
    sample({7, 5}, {{"exclusive", true}, {"reverse", true}});
    sample({2, 3, 5}, {{"axis", int64_t{1}}, {"exclusive", true}});
    sample({4, 3}, {{"axis", int64_t{0}}, {"reverse", true}});
  };
  add_samples(op, 1);
  add_samples(recurrence, 2);
  return {op, recurrence};
}

// Products of 1, 2, 4 and so on elements: each step multiplies with those that many places before.
MSLUA_ONNX(cumprod) {
  const int64_t axis = c.attrs().Int("axis"), rank = c.TypeIn().rank();
  const onnx::Dim size = c.DimsOut(0)[static_cast<size_t>(axis)];
  if (size.rows != 0) return c.Fail("it goes along the rows of the batch");
  const bool reverse = c.attrs().Bool("reverse");
  const std::string one = c.Number(1, c.TypeIn().dtype);
  const auto shifted = [&](const std::string& x, int64_t places) {
    std::vector<int64_t> pads(static_cast<size_t>(2 * rank), 0);
    pads[static_cast<size_t>(reverse ? rank + axis : axis)] = places;
    const int64_t begin = reverse ? places : 0, end = reverse ? std::numeric_limits<int64_t>::max() : -places;
    return c.Op("Slice", {c.Op("Pad", {x, c.Ints(pads), one}), c.Ints({begin}), c.Ints({end}), c.Ints({axis})});
  };
  std::string y = c.attrs().Bool("exclusive") && size.fixed > 0 ? shifted(c.In(0), 1) : c.Op("Identity", {c.In(0)});
  for (int64_t places = 1; places < size.fixed; places *= 2) y = c.Op("Mul", {y, shifted(y, places)});
  c.Result(y);
}

}  // namespace mslua
