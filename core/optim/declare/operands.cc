#include "core/optim/declare/operands.h"

#include <variant>

namespace mslua {

UpdateOperands::UpdateOperands(GraphBuilder& g, const std::vector<std::string>& names, size_t states,
                               absl::Span<const Value> inputs, const Attrs& attrs)
    : g_(g), attrs_(attrs), types_{g.TypeOf(inputs[0]).dtype} {
  for (const auto& a : attrs.items()) {
    if (std::holds_alternative<double>(a.second)) constants_.Set(a.first, a.second);
  }
  for (size_t i = 0; i < states; ++i) types_.push_back(g.TypeOf(inputs[2 + i]).dtype);
  for (size_t i = 0; i < inputs.size(); ++i) Set(names[i], Cast(g, inputs[i], ArithmeticType(types_[0])));
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

Value UpdateOperands::Sum(Value x) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < g_.TypeOf(x).rank(); ++d) axes.push_back(d);
  const Value own = ReduceSum(g_, x, axes, false);
  if (!attrs_.Has("group") || attrs_.Ints("group").empty()) return own;
  return g_.Op("all_reduce", {own}, {{"group", attrs_.Ints("group")}});
}

double UpdateOperands::Elements(Value x) const {
  const int64_t of_slices = attrs_.Has("elements") ? attrs_.Int("elements") : 0;
  return static_cast<double>(of_slices > 0 ? of_slices : g_.TypeOf(x).elements());
}

std::vector<Value> UpdateOperands::Results(std::vector<Value> values) const {
  for (size_t i = 0; i < values.size(); ++i) values[i] = Cast(g_, values[i], types_[i]);
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
