// The operands of an update by name. An update is a composite of elementwise formulas, which fusion makes one pass over
// parameter, gradient and state; numbers that may change between steps (such as the learning rate) are scalar operands.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/graph/builder.h"

namespace mslua {

// The operands by name for EmitFormula, in the parameter's element type; f32 for a parameter of 16 bits.
class UpdateOperands {
 public:
  // `names`: of the inputs: param, grad, the `states` state tensors, scalars.
  UpdateOperands(GraphBuilder& g, const std::vector<std::string>& names, size_t states, absl::Span<const Value> inputs,
                 const Attrs& attrs);
  // Computes a formula of the names so far (and of the float attributes) and gives it a name,
  // new or used before.
  Value Let(const std::string& name, absl::string_view formula);
  Value Get(const std::string& name) const;
  // Gives a value a name.
  void Set(const std::string& name, Value value);
  GraphBuilder& g() { return g_; }
  const Attrs& attrs() const { return attrs_; }

  // The sum of the elements of a value, a scalar. With the attribute `group`, where each rank has a slice, the sum over
  // the slices of these ranks.
  Value Sum(Value x);
  // The elements of the whole of a value that has the parameter's shape: its own, or with slices the attribute
  // `elements`.
  double Elements(Value x) const;

  // The results, rounded to the types of parameter and state.
  std::vector<Value> Results(std::vector<Value> values) const;

 private:
  GraphBuilder& g_;
  const Attrs& attrs_;
  std::vector<DType> types_;  // of the parameter and of each state tensor
  Attrs constants_;
  std::vector<std::pair<std::string, Value>> values_;
};

}  // namespace mslua
