#include "core/ops/declare/optimizer.h"

#include "absl/strings/str_cat.h"

namespace mslua {

void DeclareUpdate(OpDef& op, const std::vector<std::string>& states, const std::vector<std::string>& scalars) {
  op.Input("param").Input("grad", TypeClass::kFloat);
  std::vector<std::string> outputs = {"new_param"};
  for (const std::string& s : states) {
    op.Input(s);
    outputs.push_back("new_" + s);
  }
  for (const std::string& s : scalars) op.Input(s, TypeClass::kFloat);
  op.Outputs(outputs);
  const size_t tensors = 2 + states.size();
  op.Check([tensors](const Attrs&, absl::Span<const TensorType> in) -> Status {
    for (size_t i = 1; i < in.size(); ++i) {
      if (i < tensors && in[i].shape != in[0].shape)
        return absl::InvalidArgumentError("the gradient and the state have the parameter's shape");
      if (i >= tensors && in[i].rank() != 0) return absl::InvalidArgumentError("rates are scalars");
    }
    return absl::OkStatus();
  });
}

UpdateOperands::UpdateOperands(GraphBuilder& g, const std::vector<std::string>& names, absl::Span<const Value> inputs,
                               const Attrs& attrs)
    : g_(g), type_(g.TypeOf(inputs[0]).dtype) {
  for (const auto& a : attrs.items()) {
    if (std::holds_alternative<double>(a.second)) constants_.Set(a.first, a.second);
  }
  for (size_t i = 0; i < inputs.size(); ++i) Set(names[i], Cast(g, inputs[i], ArithmeticType(type_)));
}

Value UpdateOperands::Let(const std::string& name, absl::string_view formula) {
  const Value v = EmitFormula(g_, formula, values_, constants_);
  Set(name, v);
  return v;
}

Value UpdateOperands::Get(const std::string& name) const {
  for (const auto& v : values_) {
    if (v.first == name) return v.second;
  }
  return {};
}

std::vector<Value> UpdateOperands::Results(std::vector<Value> values) const {
  for (Value& v : values) v = Cast(g_, v, type_);
  return values;
}

void UpdateOperands::Set(const std::string& name, Value value) {
  for (auto& v : values_) {
    if (v.first == name) {
      v.second = value;
      return;
    }
  }
  values_.emplace_back(name, value);
}

}  // namespace mslua
