#include "absl/strings/str_cat.h"
#include "core/kernels/simd/softmax.h"
#include "core/ops/declare/labelled_rows.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Losses are f32, whatever the logits' 16 bits; f64 for f64.
DType LossType(const TensorType& logits) { return logits.dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// `each`: what each class gets of a smoothed label; `of_label`: the label's own class.
RowFormula RowsOf(const OpSpec& spec) {
  RowFormula f;
  f.shape = spec.inputs[0].shape;
  f.axes = {spec.inputs[0].rank() - 1};
  const auto classes = static_cast<double>(f.shape.back());
  const double each = spec.attrs.Float("label_smoothing") / classes;
  f.constants = {{"each", each}, {"of_label", 1 - each * (classes - 1)}};
  f.statements = {"labelled = is_column(labels)",
                  absl::StrCat("counts = differs(labels, ", spec.attrs.Int("ignore_index"), ")")};
  return f;
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

MSLUA_ROWS(sparse_softmax_cross_entropy) {
  RowFormula f = RowsOf(spec);
  f.operands = {{"logits"}, {"labels", true}};
  // `high` and `low` are the two parts of m + log(s).
  f.statements.insert(f.statements.end(),
                      {"m = row_max(logits)", "e = exp(logits - m)", "s = row_sum(e)", "t = log(s)", "high = m + t",
                       "from_t = high - m", "low = (m - (high - from_t)) + (t - from_t)",
                       "named = select(labelled, logits, 0)", "own = row_sum(named)", "loss = high - own + low"});
  if (spec.attrs.Float("label_smoothing") > 0) {
    // What the loss of the other classes is more: differences of logits, which lose no digits to a common offset.
    f.statements.insert(f.statements.end(), {"d = own - logits", "below = row_sum(d)", "smoothed = loss + below * each",
                                             "y = select(counts, smoothed, 0)"});
  } else {
    f.statements.push_back("y = select(counts, loss, 0)");
  }
  f.results = {{"y", true}, {"high", true}, {"low", true}};
  return FormOf(f, spec);
}

MSLUA_ROWS(sparse_softmax_cross_entropy_grad) {
  RowFormula f = RowsOf(spec);
  f.operands = {{"logits"}, {"labels", true}, {"lse", true}, {"low", true}, {"dloss", true}};
  f.statements.insert(f.statements.end(), {"p = exp(logits - lse - low)", "share = select(labelled, of_label, each)",
                                           "y = (p - share) * select(counts, dloss, 0)"});
  f.results = {{"y"}};
  return FormOf(f, spec);
}

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
  op.Rule("*b !c, *b -> *b, *b, *b").Grad(Grad).Fast(HighwaySparseCrossEntropy());
  ComputesLabelledRows(op);
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
  grad.Rule("*b !c, *b, *b, *b, *b -> *b !c").Fast(HighwaySparseCrossEntropyGrad()).InPlace(0, 0);
  ComputesLabelledRows(grad);
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
