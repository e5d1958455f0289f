// A gradient that users give for a part of a graph, in place of what follows from its operators.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/graph/graph.h"

namespace mslua {

// A part of the graph that computes `outputs` from `inputs`. It reads the inputs through stop_gradient, so that no
// gradient flows through the operators in it: Gradients() calls `gradient` instead.
struct CustomGradient {
  // A value that the part reads without taking it as an input, and the node that reads it.
  struct Read {
    Value value;
    int32_t reader = -1;
  };

  std::string name;            // of the cell, for messages: "Sign"
  std::vector<Value> inputs;   // floats
  std::vector<Value> outputs;  // floats; each is the output of a stop_gradient of its own, the last one made last
  std::vector<Read> reads;     // floats; an error where a gradient would have to flow through one of them
  // The gradients of the inputs, in their types, of those of the outputs, which are zeros where none flows back. An
  // invalid value is a zero gradient. Adds nodes to the graph.
  std::function<StatusOr<std::vector<Value>>(absl::Span<const Value> dy)> gradient;
};

// Those of a graph, in the order of their outputs. Gradients that are asked for may add others.
using CustomGradients = std::vector<std::shared_ptr<const CustomGradient>>;

}  // namespace mslua
