// Optimizers as graph, over the operators apply_*: from a parameter and its gradient to the parameter's and the state's
// next values.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/builder.h"
#include "core/step/parameter.h"

namespace mslua {

// What an update of one parameter depends on besides the gradient.
struct OptimizerRule {
  std::string kind = "sgd";  // OptimizerKinds()
  double momentum = 0, dampening = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool nesterov = false;
  bool bias_correction = false;  // of adam_weight_decay; adam and lamb always correct
  double weight_decay = 0;
  double lr_scale = 1;
  std::string lr_input = "lr";  // the scalar input that holds the learning rate
};

const std::vector<std::string>& OptimizerKinds();

// What the updates of a step share.
struct OptimizerStep {
  GraphBuilder& g;
  std::function<Value()> updates;                    // a scalar input: how many updates were made before, i64
  std::function<Value(const std::string& name)> lr;  // a scalar input, f32 or f64
  // The state tensor "<name>.<key of the parameter>" as an input of the graph, zero in the beginning.
  std::function<StatusOr<Value>(const std::string& name, const ParameterData& parameter)> state;
};

// The next value of the parameter and of each state tensor, by name.
struct Update {
  Value parameter;
  std::vector<std::pair<std::string, Value>> states;
};
// `value` and `gradient` may be a rank's slice of the parameter; `group` then are the ranks that have the others.
StatusOr<Update> EmitUpdate(const OptimizerStep& step, const OptimizerRule& rule, const ParameterData& parameter,
                            Value value, Value gradient, const std::vector<int64_t>& group);

}  // namespace mslua
