// The update of one parameter as graph: from a parameter and its gradient to the next values of the parameter and of
// the optimizer's state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/graph/builder.h"
#include "core/optim/declare/optimizer_def.h"

namespace mslua {

// What an update of one parameter depends on besides the gradient. Everything here is the same for all ranks.
struct OptimizerRule {
  const OptimizerDef* def = nullptr;
  Attrs settings;  // a value for each setting of `def`
  double weight_decay = 0;
  double lr_scale = 1;
  std::string lr_input = "lr";  // the scalar input that holds the learning rate
  // What changes the gradients before: an optimizer that wraps; null: nothing. Weight decay is its own then.
  const OptimizerDef* wrapper = nullptr;
  Attrs wrapper_settings;
  bool wrapped = true;  // whether it concerns this parameter
};

// "adam beta1 0.9 ... weight_decay 0.1 rate lr * 1": what ranks compare.
std::string ToString(const OptimizerRule& rule);

// A tensor of the optimizer's state for one parameter.
struct StateTensor {
  std::string name;  // "moment1"
  TensorType type;
  double init = 0;  // each element's first value
};

// The state tensor that is the parameter's average, of any optimizer (core/step/optimizer_state.h).
inline constexpr char kAverageState[] = "ema";

// What the updates of a step share, and the state of the parameter.
struct OptimizerStep {
  GraphBuilder& g;
  std::function<Value()> updates;                    // a scalar input: how many updates were made before, i64
  std::function<Value(const std::string& name)> lr;  // a scalar input, f32 or f64
  // The state as an input of the graph.
  std::function<StatusOr<Value>(const StateTensor& tensor)> state;
};

// The parameter, or a rank's slice of it.
struct UpdateTarget {
  std::string name;            // for messages
  Shape whole;                 // the parameter's shape
  Value value, gradient;       // of the parameter's shape, or slices of one dimension
  std::vector<int64_t> group;  // the ranks that have a slice; empty: it is whole
};

// The next value of the parameter and of each state tensor.
struct Update {
  struct State {
    StateTensor tensor;
    Value before, next;
  };
  Value parameter;
  std::vector<State> states;
};

// An error where the update needs whole parameters, and `target` is a slice.
StatusOr<Update> EmitUpdate(const OptimizerStep& step, const OptimizerRule& rule, const UpdateTarget& target);

}  // namespace mslua
