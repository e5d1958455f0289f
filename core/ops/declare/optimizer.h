// What the optimizers' updates share. Each is a composite of elementwise formulas, which fusion makes one pass over
// parameter, gradient and state; numbers that may change between steps (such as the learning rate) are scalar operands.
#pragma once

#include <string>
#include <vector>

#include "core/graph/builder.h"
#include "core/op/op_def.h"

namespace mslua {

// Declares operands param, grad, `states` (param's type) and `scalars` (of no dimensions), and the results
// new_param and new_<state>. The gradient may be of another float type.
void DeclareUpdate(OpDef& op, const std::vector<std::string>& states, const std::vector<std::string>& scalars);

// The operands by name for EmitFormula, in the parameter's element type; f32 for a parameter of 16 bits.
class UpdateOperands {
 public:
  // `names`: of the inputs.
  UpdateOperands(GraphBuilder& g, const std::vector<std::string>& names, absl::Span<const Value> inputs,
                 const Attrs& attrs);
  // Computes a formula of the names so far (and of the float attributes) and gives it a name,
  // new or used before.
  Value Let(const std::string& name, absl::string_view formula);
  Value Get(const std::string& name) const;
  // Gives a value a name.
  void Set(const std::string& name, Value value);
  // The results, rounded to the parameter's type.
  std::vector<Value> Results(std::vector<Value> values) const;

 private:
  GraphBuilder& g_;
  const DType type_;  // the parameter's
  Attrs constants_;
  std::vector<std::pair<std::string, Value>> values_;
};

}  // namespace mslua
