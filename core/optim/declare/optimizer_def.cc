#include "core/optim/declare/optimizer_def.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

OptimizerField MakeField(OptimizerField::Kind kind, std::string name, std::string doc) {
  OptimizerField field;
  field.kind = kind;
  field.name = std::move(name);
  field.doc = std::move(doc);
  return field;
}

// The conditions on a call: shapes of gradient and state, scalars without dimensions.
CheckFn ShapeCheck(const UpdateDef& update) {
  return [states = update.states](const Attrs&, absl::Span<const TensorType> in) -> Status {
    const size_t tensors = 2 + states.size();
    for (size_t i = 1; i < in.size(); ++i) {
      const bool own = i < 2 || i >= tensors || !states[i - 2].shape;
      if (i < tensors && own && in[i].shape != in[0].shape)
        return absl::InvalidArgumentError("the gradient and the state have the parameter's shape");
      if (!own && in[i].shape != states[i - 2].shape(in[0].shape)) {
        return absl::InvalidArgumentError(absl::StrCat(states[i - 2].operand, " is ", ToString(in[i]), ", expected ",
                                                       ToString(states[i - 2].TypeFor(in[0]))));
      }
      if (i >= tensors && in[i].rank() != 0) return absl::InvalidArgumentError("rates are scalars");
    }
    return absl::OkStatus();
  };
}

void DeclareAttrs(const OptimizerDef& def, const UpdateDef& update, OpDef* op) {
  for (const std::string& setting : update.attrs) {
    const OptimizerField* field = def.FieldOf(setting);
    const bool is_bool = field->kind == OptimizerField::Kind::kBool;
    op->Attr(setting, is_bool ? AttrKind::kBool : AttrKind::kFloat, def.Default(setting), field->doc);
  }
  if (update.sums) {
    op->Attr("group", AttrKind::kInts, std::vector<int64_t>{},
             "ranks that each have a slice of param; none: it is whole");
  }
  if (update.means) op->Attr("elements", AttrKind::kInt, int64_t{0}, "of the whole param, where there are slices");
}

OpDef UpdateOperator(const OptimizerDef& def, const UpdateDef& update) {
  OpDef op(update.op);
  op.Doc(update.doc).Input("param").Input("grad", TypeClass::kFloat);
  std::vector<std::string> names = {"param", "grad"}, outputs = {def.wraps ? "new_grad" : "new_param"};
  for (const StateDef& s : update.states) {
    op.Input(s.operand, s.wide ? TypeClass::kFloat : TypeClass::kT);
    names.push_back(s.operand);
    outputs.push_back(absl::StrCat("new_", s.operand));
  }
  for (const std::string& s : update.scalars) {
    op.Input(s, TypeClass::kFloat);
    names.push_back(s);
  }
  op.Outputs(outputs).Check(ShapeCheck(update));
  DeclareAttrs(def, update, &op);
  op.Body([names, states = update.states.size(), body = update.body](GraphBuilder& g, absl::Span<const Value> in,
                                                                     const Attrs& attrs) -> std::vector<Value> {
    UpdateOperands u(g, names, states, in, attrs);
    return body(u);
  });
  const TensorType param{DType::kF32, update.sample_shape};
  for (const Attrs& attrs : update.samples) {
    std::vector<TensorType> types = {param, param};
    for (const StateDef& s : update.states) types.push_back(s.TypeFor(param));
    types.insert(types.end(), update.scalars.size(), {DType::kF32, {}});
    op.AddSample({std::move(types), attrs, update.sample_low, update.sample_high});
  }
  return op;
}

}  // namespace

TensorType StateDef::TypeFor(const TensorType& parameter) const {
  TensorType type = parameter;
  if (wide) type.dtype = ArithmeticType(type.dtype);
  if (shape) type.shape = shape(parameter.shape);
  return type;
}

OptimizerDef& OptimizerDef::Params() {
  fields.push_back(
      MakeField(OptimizerField::Kind::kParams, "params",
                "what to train: a list of parameters, a Lua pattern on their names, a function of a "
                "parameter, or a list of groups { params =, weight_decay =, lr = }, where lr is the rate at "
                "the highest rate of learning_rate, elsewhere in proportion; nil: all"));
  return *this;
}

OptimizerDef& OptimizerDef::Rate(double fallback) {
  Rate();
  fields.back().fallback = {fallback};
  return *this;
}

OptimizerDef& OptimizerDef::Rate() {
  fields.push_back(MakeField(OptimizerField::Kind::kRate, "learning_rate",
                             "a number, one number a step, a schedule, or a function of step and epoch"));
  return *this;
}

OptimizerDef& OptimizerDef::Number(std::string field, double fallback, Limits limits, std::string text) {
  Number(std::move(field), limits, std::move(text));
  fields.back().fallback = {fallback};
  return *this;
}

OptimizerDef& OptimizerDef::Number(std::string field, Limits limits, std::string text) {
  fields.push_back(MakeField(OptimizerField::Kind::kNumber, field, std::move(text)));
  fields.back().settings = {std::move(field)};
  fields.back().limits = limits;
  return *this;
}

OptimizerDef& OptimizerDef::Numbers(std::string field, std::vector<std::string> settings, std::vector<double> fallback,
                                    Limits limits, std::string text) {
  fields.push_back(MakeField(OptimizerField::Kind::kNumbers, std::move(field), std::move(text)));
  fields.back().settings = std::move(settings);
  fields.back().fallback = std::move(fallback);
  fields.back().limits = limits;
  return *this;
}

OptimizerDef& OptimizerDef::Bool(std::string field, bool fallback, std::string text, std::string setting) {
  fields.push_back(MakeField(OptimizerField::Kind::kBool, field, std::move(text)));
  fields.back().settings = {setting.empty() ? std::move(field) : std::move(setting)};
  fields.back().fallback = {fallback ? 1.0 : 0.0};
  return *this;
}

OptimizerDef& OptimizerDef::WeightDecay(std::string text) {
  fields.push_back(MakeField(OptimizerField::Kind::kWeightDecay, "weight_decay", std::move(text)));
  fields.back().fallback = {0};
  fields.back().limits = AtLeast(0);
  return *this;
}

OptimizerDef& OptimizerDef::LossScale() {
  fields.push_back(MakeField(OptimizerField::Kind::kLossScale, "loss_scale",
                             "what gradients are divided by: that of the ms.FixedLossScaleManager"));
  fields.back().fallback = {1};
  fields.back().limits = Above(0);
  return *this;
}

OptimizerDef& OptimizerDef::Wraps() {
  wraps = true;
  fields.push_back(MakeField(OptimizerField::Kind::kOptimizer, "optimizer", "the optimizer that makes the update"));
  return *this;
}

OptimizerDef& OptimizerDef::Filter(std::string field, std::vector<std::string> words, std::string text) {
  fields.push_back(MakeField(OptimizerField::Kind::kFilter, std::move(field), std::move(text)));
  fields.back().words = std::move(words);
  return *this;
}

UpdateDef& OptimizerDef::Update(std::string op, std::string text) {
  updates.emplace_back();
  updates.back().op = std::move(op);
  updates.back().doc = std::move(text);
  return updates.back();
}

void OptimizerDef::UpdateOf(std::string optimizer) {
  updates.emplace_back();
  updates.back().of = std::move(optimizer);
}

const OptimizerField* OptimizerDef::FieldOf(absl::string_view setting) const {
  for (const OptimizerField& field : fields) {
    if (std::find(field.settings.begin(), field.settings.end(), setting) != field.settings.end()) return &field;
  }
  return nullptr;
}

AttrValue OptimizerDef::Default(absl::string_view setting) const {
  const OptimizerField& field = *FieldOf(setting);
  if (field.fallback.empty()) return 0.0;
  if (field.kind == OptimizerField::Kind::kBool) return field.fallback[0] != 0;
  const auto at = std::find(field.settings.begin(), field.settings.end(), setting);
  return field.fallback[at - field.settings.begin()];
}

const UpdateDef& OptimizerDef::UpdateFor(const Attrs& settings, const Shape& parameter) const {
  for (const UpdateDef& update : updates) {
    if (!update.when || update.when(settings, parameter)) return update;
  }
  return updates.back();
}

std::vector<OpDef> UpdateOperators(const OptimizerDef& def) {
  std::vector<OpDef> ops;
  for (const UpdateDef& update : def.updates) {
    if (update.of.empty()) ops.push_back(UpdateOperator(def, update));
  }
  return ops;
}

std::vector<OptimizerDef> Linked(std::vector<OptimizerDef> all) {
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (OptimizerDef& def : all) {
    for (UpdateDef& update : def.updates) {
      if (update.of.empty()) continue;
      const auto other =
          std::find_if(all.begin(), all.end(), [&](const OptimizerDef& d) { return d.name == update.of; });
      if (other == all.end()) std::abort();  // core/optim/optimizers_test.cc
      std::string of = std::move(update.of);
      update = other->updates[0];
      update.of = std::move(of);
    }
  }
  return all;
}

}  // namespace mslua
