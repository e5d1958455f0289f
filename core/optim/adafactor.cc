#include "core/optim/define.h"

namespace mslua {
namespace {

constexpr char kDoc[] =
    "Adafactor (Shazeer and Stern, 2018, algorithms 4 and 5): b = 1 - step^-decay_rate; v is the running mean with the "
    "weight b of grad^2 + eps1; s = grad / sqrt(v); s is divided by max(1, RMS(s) / clip_threshold) and multiplied by "
    "the rate, which is lr, with relative_step min(lr, 1 / sqrt(step)), with warmup_init also at most 1e-6 * step, and "
    "with scale_parameter times max(eps2, RMS(param)); new_param = param * (1 - rate * weight_decay) - s. ";
constexpr char kFactored[] =
    "Of matrices (the last two dimensions) v is row * col / mean(row), the means of rows and columns kept alone. ";
constexpr char kMoment[] = "s is replaced by its running mean, of which beta1 stays. ";
constexpr char kEnd[] = "step counts from 1; the state starts at 0.";

// The parameter's shape without dimension `back` from the end.
std::function<Shape(const Shape&)> Without(int back) {
  return [back](const Shape& parameter) {
    Shape shape = parameter;
    if (static_cast<int>(shape.size()) >= back) shape.erase(shape.end() - back);
    return shape;
  };
}

// The mean over the dimension `back` from the end.
Value MeanOver(GraphBuilder& g, Value x, int64_t back) {
  const int64_t axis = g.TypeOf(x).rank() - back;
  const auto n = static_cast<double>(g.TypeOf(x).shape[axis]);
  return Mul(g, ReduceSum(g, x, {axis}, false), 1 / n);
}

// Sets `name` to the mean of the squares of the whole.
void SetMeanSquare(UpdateOperands& u, const std::string& name, Value x) {
  u.Set(name, Mul(u.g(), u.Sum(Mul(u.g(), x, x)), 1 / u.Elements(x)));
}

// The new means of rows and columns; names "scaled" what the gradient is by their product.
std::vector<Value> ByRowsAndColumns(UpdateOperands& u) {
  GraphBuilder& g = u.g();
  const Value square = u.Let("square", "grad * grad + eps1");
  u.Set("row_mean", MeanOver(g, square, 1));
  u.Set("col_mean", MeanOver(g, square, 2));
  const Value row = u.Let("row", "keep * row + (1 - keep) * row_mean");
  const Value col = u.Let("col", "keep * col + (1 - keep) * col_mean");
  const auto with_one = [&](Value v, int64_t back) {
    Shape shape = g.TypeOf(v).shape;
    shape.insert(shape.end() - (back - 1), 1);
    return Reshape(g, v, shape);
  };
  // rsqrt(row / mean(row)) and rsqrt(col), multiplied one after the other: their product may be out of range.
  const Value share = Div(g, row, with_one(MeanOver(g, row, 1), 1));
  u.Set("scaled",
        Mul(g, Mul(g, u.Get("grad"), with_one(g.Op("rsqrt", {share}), 1)), with_one(g.Op("rsqrt", {col}), 2)));
  return {row, col};
}

std::vector<Value> Formula(UpdateOperands& u, bool factored, bool moment) {
  // 1 - step^-decay_rate.
  u.Let("keep", "-expm1(-decay_rate * log(step))");
  std::vector<Value> states;
  if (factored) {
    states = ByRowsAndColumns(u);
  } else {
    states = {u.Let("v", "keep * v + (1 - keep) * (grad * grad + eps1)")};
    u.Let("scaled", "grad * rsqrt(v)");
  }
  SetMeanSquare(u, "scaled_square", u.Get("scaled"));
  u.Let("rate", "lr");
  if (u.attrs().Bool("relative_step")) u.Let("rate", "min(rate, rsqrt(step))");
  if (u.attrs().Bool("warmup_init")) u.Let("rate", "min(rate, 1e-6 * step)");
  if (u.attrs().Bool("scale_parameter")) {
    SetMeanSquare(u, "param_square", u.Get("param"));
    u.Let("rate", "rate * max(eps2, sqrt(param_square))");
  }
  u.Let("scaled", "scaled * (rate / max(1, sqrt(scaled_square) / clip_threshold))");
  if (moment) states.push_back(u.Let("scaled", "beta1 * moment + (1 - beta1) * scaled"));
  states.insert(states.begin(), u.Let("param", "param * (1 - rate * weight_decay) - scaled"));
  return u.Results(std::move(states));
}

// The operator for matrices or for the rest, with or without the running mean of steps.
void AddUpdate(OptimizerDef* def, bool factored, bool moment) {
  const std::string doc = std::string(kDoc) + (factored ? kFactored : "") + (moment ? kMoment : "") + kEnd;
  UpdateDef& update =
      def->Update(std::string("apply_adafactor") + (factored ? "" : "_vector") + (moment ? "_momentum" : ""), doc);
  if (factored) {
    update.State({"row", "exp_avg_sq_row", "", true, Without(1)}).NeedsWhole();
    update.State({"col", "exp_avg_sq_col", "", true, Without(2)});
  } else {
    update.State("v", "exp_avg_sq").Means().SampleShape({7});
  }
  std::vector<std::string> settings = {"eps1",          "eps2",       "clip_threshold", "decay_rate", "scale_parameter",
                                       "relative_step", "warmup_init"};
  if (moment) {
    update.State("moment", "exp_avg");
    settings.push_back("beta1");
  }
  update.Scalars({"lr", "weight_decay", "step"}).Settings(std::move(settings));
  update.Used([factored, moment](const Attrs& s, const Shape& parameter) {
    return (parameter.size() >= 2) == factored && (s.Float("beta1") > 0) == moment;
  });
  update.Formula([factored, moment](UpdateOperands& u) { return Formula(u, factored, moment); });
  update.SampleRange(1, 2);  // steps count from 1
  update.Sample({{"relative_step", false}, {"scale_parameter", false}});
  update.Sample({{"warmup_init", true}});
}

}  // namespace

MSLUA_OPTIMIZER(adafactor) {
  OptimizerDef def("adafactor", "Adafactor");
  def.Doc(
      "Adafactor (Shazeer and Stern, 2018), MindSpore's AdaFactor: of a matrix it keeps the means of the squares of "
      "its rows and columns, little memory. With relative_step the rate is min(learning_rate, 1 / sqrt(step)), without "
      "it learning_rate.");
  def.Params().Rate(1e-2);
  def.Numbers("eps", {"eps1", "eps2"}, {1e-30, 1e-3}, Above(0),
              "added to squares of gradients, and the least RMS of a parameter for scale_parameter");
  def.Number("clip_threshold", 1, Above(0), "the largest RMS of a step before the learning rate");
  def.Number("decay_rate", 0.8, Above(0), "means of squares keep 1 - step^-decay_rate");
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of steps that stays; 0: no mean is kept");
  def.WeightDecay("rate times it times the parameter is subtracted from the parameter");
  def.Bool("scale_parameter", true, "multiply the rate by the parameter's RMS");
  def.Bool("relative_step", true, "let the rate fall with 1 / sqrt(step)");
  def.Bool("warmup_init", false, "begin with rates of 1e-6 * step; needs relative_step").LossScale();
  def.Check([](const Attrs& s) -> Status {
    if (s.Bool("warmup_init") && !s.Bool("relative_step"))
      return absl::InvalidArgumentError("warmup_init needs relative_step");
    return absl::OkStatus();
  });
  for (const bool factored : {true, false}) {
    for (const bool moment : {true, false}) AddUpdate(&def, factored, moment);
  }
  return def;
}

}  // namespace mslua
