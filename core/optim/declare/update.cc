#include "core/optim/declare/update.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {
namespace {

Status CheckSlice(const OptimizerDef& def, const UpdateDef& update, const UpdateTarget& target) {
  if (target.group.empty() || update.elementwise || update.sums) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "nn.", def.class_name, ": its update needs the whole of parameter '", target.name, "', of shape [",
      absl::StrJoin(target.whole, ","),
      "], and enable_parallel_optimizer gives each rank a slice: leave enable_parallel_optimizer out, or give the "
      "parameter parallel_optimizer = false"));
}

Attrs AttrsOf(const UpdateDef& update, const Attrs& settings, const UpdateTarget& target) {
  Attrs attrs;
  for (const std::string& setting : update.attrs) attrs.Set(setting, *settings.Find(setting));
  if (update.sums) attrs.Set("group", target.group);
  if (update.means && !target.group.empty()) {
    int64_t elements = 1;
    for (int64_t size : target.whole) elements *= size;
    attrs.Set("elements", elements);
  }
  return attrs;
}

// The scalar operands, made where they are first asked for.
class Scalars {
 public:
  // `lr` and `decay` are values already.
  Scalars(const OptimizerStep& step, DType dtype, Value lr, Value decay)
      : step_(step), dtype_(dtype), lr_(lr), decay_(decay) {}

  void AppendTo(std::vector<Value>* operands, const UpdateDef& update, const Attrs& settings) const {
    GraphBuilder& g = step_.g;
    for (const std::string& name : update.scalars) {
      operands->push_back(name == "lr"             ? lr_
                          : name == "weight_decay" ? decay_
                          : name == "step"         ? Add(g, Cast(g, step_.updates(), dtype_), 1.0)
                                                   : g.Constant(settings.Float(name), dtype_));
    }
  }

 private:
  const OptimizerStep& step_;
  const DType dtype_;
  const Value lr_, decay_;
};

// The gradient that a wrapper makes of the gradient.
StatusOr<Value> WrappedGradient(const OptimizerRule& rule, const UpdateTarget& target, const Scalars& scalars,
                                GraphBuilder& g) {
  const UpdateDef& update = rule.wrapper->UpdateFor(rule.wrapper_settings, target.whole);
  RETURN_IF_ERROR(CheckSlice(*rule.wrapper, update, target));
  std::vector<Value> operands = {target.value, target.gradient};
  scalars.AppendTo(&operands, update, rule.wrapper_settings);
  return g.OpMulti(update.op, operands, AttrsOf(update, rule.wrapper_settings, target))[0];
}

std::string SettingsText(const OptimizerDef& def, const Attrs& settings) {
  std::string text = def.name;
  for (const auto& [name, value] : settings.items()) absl::StrAppend(&text, " ", name, " ", AttrText(value));
  return text;
}

}  // namespace

std::string ToString(const OptimizerRule& rule) {
  std::string text;
  if (rule.wrapper != nullptr) {
    absl::StrAppend(&text, SettingsText(*rule.wrapper, rule.wrapper_settings), rule.wrapped ? "" : " (left out)",
                    " of ");
  }
  absl::StrAppend(&text, SettingsText(*rule.def, rule.settings), " weight_decay ", rule.weight_decay, " rate ",
                  rule.lr_input, " * ", rule.lr_scale);
  return text;
}

StatusOr<Update> EmitUpdate(const OptimizerStep& s, const OptimizerRule& rule, const UpdateTarget& target) {
  GraphBuilder& g = s.g;
  const UpdateDef& update = rule.def->UpdateFor(rule.settings, target.whole);
  RETURN_IF_ERROR(CheckSlice(*rule.def, update, target));
  // Rates, decays and the number of the update are f32 beside a parameter of 16 bits, which would round them.
  const Value p = target.value;
  const DType dtype = ArithmeticType(g.TypeOf(p).dtype);
  Value lr = Cast(g, s.lr(rule.lr_input), dtype), decay = g.Constant(rule.weight_decay, dtype);
  if (rule.lr_scale != 1) lr = Mul(g, lr, rule.lr_scale);
  double weight_decay = rule.weight_decay;
  Value gradient = target.gradient;
  if (rule.wrapper != nullptr) {
    if (rule.wrapped) {
      ASSIGN_OR_RETURN(gradient, WrappedGradient(rule, target, Scalars(s, dtype, lr, decay), g));
    }
    weight_decay = 0;
    decay = g.Constant(0, dtype);
  }
  if (rule.def->gradient) {
    const auto changed = rule.def->gradient({g, rule.settings, weight_decay, p, gradient, s.updates});
    if (changed) {
      gradient = changed->gradient;
      decay = changed->weight_decay;
    }
  }
  Update next;
  std::vector<Value> operands = {p, gradient};
  for (const StateDef& state : update.states) {
    StateTensor tensor{state.name, state.TypeFor(g.TypeOf(p)),
                       state.init.empty() ? 0 : rule.settings.Float(state.init)};
    ASSIGN_OR_RETURN(const Value before, s.state(tensor));
    operands.push_back(before);
    next.states.push_back({std::move(tensor), before, Value()});
  }
  Scalars(s, dtype, lr, decay).AppendTo(&operands, update, rule.settings);
  const std::vector<Value> results = g.OpMulti(update.op, operands, AttrsOf(update, rule.settings, target));
  RETURN_IF_ERROR(g.status());
  next.parameter = results[0];
  for (size_t i = 0; i < next.states.size(); ++i) next.states[i].next = results[i + 1];
  return next;
}

}  // namespace mslua
