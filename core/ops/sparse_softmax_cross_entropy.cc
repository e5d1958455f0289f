#include <algorithm>
#include <cmath>

#include "core/kernels/dispatch.h"
#include "core/kernels/simd/softmax.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Losses are f32, whatever the logits' 16 bits; f64 for f64.
DType LossType(const TensorType& logits) { return logits.dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

struct Records {
  int64_t records, classes, ignore;
  double each, of_label;  // what each class gets of a smoothed label, and the label's own class
  explicit Records(const OpCall& call)
      : records(call.inputs[1].type.elements()),
        classes(call.inputs[0].type.shape.back()),
        ignore(call.attrs.Int("ignore_index")),
        each(call.attrs.Float("label_smoothing") / static_cast<double>(classes)),
        of_label(1 - each * static_cast<double>(classes - 1)) {}
};

int64_t Label(const OpCall& call, int64_t i) {
  return static_cast<int64_t>(LoadAsDouble(call.inputs[1].type.dtype, call.inputs[1].data, i));
}

Status Forward(const OpCall& call) {
  const Records n(call);
  RETURN_IF_ERROR(CheckLabels(call.inputs[1].type.dtype, call.inputs[1].data, n.records, n.classes, n.ignore));
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    for (int64_t i = 0; i < n.records; ++i) {
      const T* x = call.inputs[0].as<T>() + i * n.classes;
      C max = -INFINITY, sum = 0;
      for (int64_t j = 0; j < n.classes; ++j) max = std::max(max, static_cast<C>(x[j]));
      for (int64_t j = 0; j < n.classes; ++j) sum += std::exp(static_cast<C>(x[j]) - max);
      const TwoParts<C> lse = ExactSum(max, std::log(sum));
      const int64_t label = Label(call, i);
      C loss = label == n.ignore ? C{0} : lse.high - static_cast<C>(x[label]) + lse.low;
      if (label != n.ignore && n.each > 0) {
        // What the loss of the other classes is more: differences of logits, which lose no digits to a common offset.
        C below = 0;
        for (int64_t j = 0; j < n.classes; ++j) below += static_cast<C>(x[label]) - static_cast<C>(x[j]);
        loss += below * static_cast<C>(n.each);
      }
      call.outputs[0].as<C>()[i] = loss;
      call.outputs[1].as<C>()[i] = lse.high;
      call.outputs[2].as<C>()[i] = lse.low;
    }
  });
  return absl::OkStatus();
}

Status Backward(const OpCall& call) {
  const Records n(call);
  RETURN_IF_ERROR(CheckLabels(call.inputs[1].type.dtype, call.inputs[1].data, n.records, n.classes, n.ignore));
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    for (int64_t i = 0; i < n.records; ++i) {
      const int64_t label = Label(call, i);
      const C lse = call.inputs[2].as<C>()[i], low = call.inputs[3].as<C>()[i],
              dloss = label == n.ignore ? C{0} : call.inputs[4].as<C>()[i];
      for (int64_t j = 0; j < n.classes; ++j) {
        const C p = std::exp(static_cast<C>(call.inputs[0].as<T>()[i * n.classes + j]) - lse - low);
        call.outputs[0].as<T>()[i * n.classes + j] =
            static_cast<T>((p - static_cast<C>(j == label ? n.of_label : n.each)) * dloss);
      }
    }
  });
  return absl::OkStatus();
}

DeviceStep CheckOnDevice(const OpSpec& spec) {
  return CheckRange(1, spec.inputs[1].elements(), 0, spec.inputs[0].shape.back(), spec.attrs.Int("ignore_index"));
}

// Their type C is the loss's.
std::string Constants(const OpSpec& spec) {
  const int64_t classes = spec.inputs[0].shape.back();
  const double each = spec.attrs.Float("label_smoothing") / static_cast<double>(classes);
  return absl::StrCat(Constant("classes", classes), Constant("ignore", spec.attrs.Int("ignore_index")),
                      "  const C each = (C)", NumberText(each), ", of_label = (C)",
                      NumberText(1 - each * static_cast<double>(classes - 1)), ";\n");
}

DeviceProgram ForwardOnDevice(const OpSpec& spec) {
  const int64_t classes = spec.inputs[0].shape.back();
  DeviceProgram program;
  program.steps.push_back(CheckOnDevice(spec));
  program.steps.push_back(
      EachRow(spec.inputs[1].elements(), classes,
              absl::StrCat("  typedef ", DeviceType(spec.outputs[0].dtype), " C;\n", Constants(spec), R"cuda(
  const auto* x = x0 + row * classes;
  C max = -(C)INFINITY, sum = 0;
  for (i64 k = team.lane; k < classes; k += team.lanes) max = Max<C>(max, Get(x[k]));
  max = team.Max(max);
  for (i64 k = team.lane; k < classes; k += team.lanes) sum += Exp((C)Get(x[k]) - max);
  sum = Log(team.Sum(sum));
  const i64 label = Get(x1[row]);
  const bool counts = label != ignore && label >= 0 && label < classes;
  C below = 0;
  if (counts && each > 0) {
    for (i64 k = team.lane; k < classes; k += team.lanes) below += (C)Get(x[label]) - (C)Get(x[k]);
  }
  below = team.Sum(below);
  if (team.lane == 0) {
    const C high = max + sum, from_sum = high - max, low = (max - (high - from_sum)) + (sum - from_sum);
    y0[row] = counts ? high - (C)Get(x[label]) + low + below * each : (C)0;
    y1[row] = high;
    y2[row] = low;
  }
)cuda")));
  return program;
}

DeviceProgram BackwardOnDevice(const OpSpec& spec) {
  DeviceProgram program;
  program.steps.push_back(CheckOnDevice(spec));
  program.steps.push_back(
      EachElement(spec.outputs[0].elements(),
                  absl::StrCat("  typedef ", DeviceType(spec.inputs[4].dtype), " C;\n", Constants(spec), R"cuda(
  const i64 row = i / classes, label = Get(x1[row]);
  const C p = Exp((C)Get(x0[i]) - x2[row] - x3[row]), dloss = label == ignore ? (C)0 : x4[row];
  Set(y0[i], (p - (label == (i64)(i % classes) ? of_label : each)) * dloss);
)cuda")));
  return program;
}

// The attributes of the loss and of its gradient.
void Declare(OpDef& op) {
  op.Attr("ignore_index", AttrKind::kInt, int64_t{-100}, "a label without a loss");
  op.Attr("label_smoothing", AttrKind::kFloat, 0.0, "the share of a label that is spread over all classes");
}

Status CheckSmoothing(const Attrs& a) {
  const double smoothing = a.Float("label_smoothing");
  if (smoothing >= 0 && smoothing <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("label_smoothing is ", smoothing, ", expected 0 to 1"));
}

Status LabelFault(const OpSpec& spec, const DeviceFault& fault) {
  std::vector<int64_t> labels(static_cast<size_t>(fault.at) + 1, 0);
  labels.back() = fault.value;
  return CheckLabels(DType::kI64, labels.data(), fault.at + 1, spec.inputs[0].shape.back(),
                     spec.attrs.Int("ignore_index"));
}

std::vector<Value> Grad(GradContext& c) {
  GraphBuilder& g = c.g;
  const Value logits = c.x(0), labels = c.x(1), lse = c.outputs[1], low = c.outputs[2];
  Value d;
  // lse_low is what rounding lost: it has no gradient.
  if (c.dy[0].valid())
    d = g.Op("sparse_softmax_cross_entropy_grad", {logits, labels, lse, low, c.dy[0]},
             {{"ignore_index", c.attrs.Int("ignore_index")}, {"label_smoothing", c.attrs.Float("label_smoothing")}});
  if (c.dy[1].valid()) {
    Shape column = g.TypeOf(lse).shape;
    column.push_back(1);
    const TensorType x = g.TypeOf(logits);
    const Value p = EmitFormula(g, "exp(x - lse - low) * dlse",
                                {{"x", Cast(g, logits, LossType(x))},
                                 {"lse", Reshape(g, lse, column)},
                                 {"low", Reshape(g, low, column)},
                                 {"dlse", Reshape(g, c.dy[1], column)}});
    const Value through_lse = Cast(g, p, x.dtype);
    d = d.valid() ? Add(g, d, through_lse) : through_lse;
  }
  return {d, Value()};
}

// What is differentiated is the sum of u * slope * dloss, where slope = softmax(logits) - target is 0 for a label
// without a loss; softmax(logits) = exp(logits - lse - low).
std::vector<Value> GradGrad(GradContext& c) {
  GraphBuilder& g = c.g;
  const Value logits = c.x(0), labels = c.x(1), lse = c.x(2), low = c.x(3), dloss = c.x(4);
  const TensorType x = g.TypeOf(logits), rows = g.TypeOf(lse);
  const Value slope =
      g.Op("sparse_softmax_cross_entropy_grad", {logits, labels, lse, low, g.Constant(1, rows.dtype, rows.shape)},
           {{"ignore_index", c.attrs.Int("ignore_index")}, {"label_smoothing", c.attrs.Float("label_smoothing")}});
  const Value u = Cast(g, c.dy[0], rows.dtype);
  const Value ignored =
      g.Constant(static_cast<double>(c.attrs.Int("ignore_index")), g.TypeOf(labels).dtype, rows.shape);
  const Value counts = Cast(g, g.Op("not_equal", {labels, ignored}), rows.dtype);
  Shape column = rows.shape;
  column.push_back(1);
  const Value d = EmitFormula(g, "u * exp(x - lse - low) * dloss",
                              {{"u", u},
                               {"x", Cast(g, logits, rows.dtype)},
                               {"lse", Reshape(g, lse, column)},
                               {"low", Reshape(g, low, column)},
                               {"dloss", Reshape(g, Mul(g, dloss, counts), column)}});
  const std::vector<int64_t> classes = {x.rank() - 1};
  const Value dlse = Mul(g, ReduceSum(g, d, classes, false), -1);
  return {Cast(g, d, x.dtype), Value(), dlse, dlse,
          ReduceSum(g, Mul(g, u, Cast(g, slope, rows.dtype)), classes, false)};
}

}  // namespace

MSLUA_OPERATOR(sparse_softmax_cross_entropy) {
  OpDef op("sparse_softmax_cross_entropy");
  op.Class("SparseSoftmaxCrossEntropyWithLogits");
  op.Doc(
      "-log(softmax(logits)[label]) for logits [.., classes] and labels [..]: loss [..] in f32 (f64 for f64), lse "
      "[..], the logarithm of the sum of exp(logits), and lse_low [..], what rounding lse lost, so that a common "
      "offset of the logits costs no digits of the gradient. With label_smoothing s the loss is 1 - s of the label's "
      "and s of the mean of all classes'. A record whose label is ignore_index has loss 0 and no gradient; another "
      "label outside [0, classes) is an error that names it.");
  op.Input("logits").Input("labels", TypeClass::kIndex).Outputs({"loss", "lse", "lse_low"});
  Declare(op);
  op.Check([](const Attrs& a, absl::Span<const TensorType>) { return CheckSmoothing(a); });
  op.Rule("*b !c, *b -> *b, *b, *b").Grad(Grad).Reference(Forward).Fast(HighwaySparseCrossEntropy());
  op.OnDevice(ForwardOnDevice, LabelFault);
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    Shape b = in[0].shape;
    if (b.empty() || b.back() < 1) return absl::InvalidArgumentError("logits need a dimension of classes");
    b.pop_back();
    if (in[1].shape != b) return absl::InvalidArgumentError("labels need the logits' shape without the classes");
    return std::vector<TensorType>(3, {LossType(in[0]), b});
  });
  op.AddSample({{{DType::kF32, {5, 4}}, {DType::kI32, {5}}}, {}, -2, 2});
  op.AddSample({{{DType::kF32, {2, 3, 37}}, {DType::kI64, {2, 3}}}, {{"ignore_index", int64_t{1}}}, -2, 2});
  op.AddSample({{{DType::kF32, {3, 37}}, {DType::kI32, {3}}}, {{"label_smoothing", 0.1}}, -2, 2});

  OpDef grad("sparse_softmax_cross_entropy_grad");
  grad.Doc("The logits' gradient: (softmax(logits) - one_hot(labels), smoothed) * dloss, from lse and lse_low.");
  grad.Input("logits")
      .Input("labels", TypeClass::kIndex)
      .Input("lse", TypeClass::kFloat)
      .Input("lse_low", TypeClass::kFloat)
      .Input("dloss", TypeClass::kFloat)
      .Outputs({"dlogits"});
  Declare(grad);
  grad.Grad(GradGrad);
  grad.Rule("*b !c, *b, *b, *b, *b -> *b !c").Reference(Backward).Fast(HighwaySparseCrossEntropyGrad()).InPlace(0, 0);
  grad.OnDevice(BackwardOnDevice, LabelFault);
  grad.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    RETURN_IF_ERROR(CheckSmoothing(a));
    const DType loss = LossType(in[0]);
    const bool fits = in[2].dtype == loss && in[3].dtype == loss && in[4].dtype == loss;
    return fits ? absl::OkStatus() : absl::InvalidArgumentError("lse, lse_low and dloss are in the loss's type");
  });
  grad.AddSample(
      {{{DType::kF32, {5, 4}}, {DType::kI32, {5}}, {DType::kF32, {5}}, {DType::kF32, {5}}, {DType::kF32, {5}}}});
  grad.AddSample(
      {{{DType::kF32, {3, 37}}, {DType::kI32, {3}}, {DType::kF32, {3}}, {DType::kF32, {3}}, {DType::kF32, {3}}},
       {{"label_smoothing", 0.1}}});
  return {op, grad};
}

}  // namespace mslua
