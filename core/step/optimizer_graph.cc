#include "core/step/optimizer_graph.h"

#include "absl/strings/str_cat.h"
#include "core/checkpoint/tensor_names.h"

namespace mslua {
namespace {

// The kinds of state that an optimizer keeps.
std::vector<std::string> StateNames(const OptimizerRule& rule) {
  if (rule.kind == "sgd" && rule.momentum == 0) return {};
  if (rule.kind == "sgd" || rule.kind == "momentum") return {checkpoint::kMoments};
  return {checkpoint::kMoment1, checkpoint::kMoment2};
}

}  // namespace

const std::vector<std::string>& OptimizerKinds() {
  static const auto* kinds = new std::vector<std::string>{"sgd", "momentum", "adam", "adam_weight_decay", "lamb"};
  return *kinds;
}

StatusOr<Update> EmitUpdate(const OptimizerStep& s, const OptimizerRule& rule, const ParameterData& parameter, Value p,
                            Value grad, const std::vector<int64_t>& group) {
  GraphBuilder& g = s.g;
  // Rates, decays and the number of the update are f32 beside a parameter of 16 bits, which would round them.
  const DType dtype = ArithmeticType(g.TypeOf(p).dtype);
  const auto constant = [&](double v) { return g.Constant(v, dtype); };
  Value lr = Cast(g, s.lr(rule.lr_input), dtype), decay = constant(rule.weight_decay);
  if (rule.lr_scale != 1) lr = Mul(g, lr, rule.lr_scale);
  if (rule.dampening != 0) {
    // PyTorch's and MindSpore's: decay comes first, and the first step is not dampened.
    grad = Cast(g, grad, dtype);
    if (rule.weight_decay != 0)
      grad = EmitFormula(g, "dy + wd * p", {{"p", Cast(g, p, dtype)}, {"dy", grad}}, {{"wd", rule.weight_decay}});
    decay = constant(0);
    const Value first = g.Op("equal", {s.updates(), g.Constant(0, DType::kI64)});
    grad = Mul(g, grad, g.Op("select", {first, constant(1), constant(1 - rule.dampening)}));
  }
  const std::vector<std::string> names = StateNames(rule);
  std::vector<Value> operands = {p, grad};
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const Value state, s.state(name, parameter));
    operands.push_back(state);
  }
  operands.push_back(lr);
  std::string op = absl::StrCat("apply_", names.empty() ? "sgd" : rule.kind == "sgd" ? "momentum" : rule.kind);
  Attrs attrs;
  if (names.size() == 1) {
    operands.push_back(constant(rule.momentum));
    attrs.Set("nesterov", rule.nesterov);
  }
  operands.push_back(decay);
  if (names.size() == 2) {
    operands.push_back(Add(g, Cast(g, s.updates(), dtype), 1.0));
    attrs.Set("beta1", rule.beta1).Set("beta2", rule.beta2).Set("eps", rule.eps);
    if (rule.kind == "adam_weight_decay") attrs.Set("bias_correction", rule.bias_correction);
  }
  // Its norms are of whole parameters.
  if (rule.kind == "lamb") attrs.Set("group", group);
  const std::vector<Value> next = g.OpMulti(op, operands, std::move(attrs));
  RETURN_IF_ERROR(g.status());
  Update update;
  update.parameter = next[0];
  for (size_t i = 0; i < names.size(); ++i) update.states.emplace_back(names[i], next[i + 1]);
  return update;
}

}  // namespace mslua
