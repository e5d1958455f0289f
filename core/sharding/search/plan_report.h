// A sharding plan in words and numbers, for `mslua plan`: what each operator and parameter became, and what a step is
// predicted to take.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/sharding/plan.h"
#include "core/sharding/search/cost.h"

namespace mslua {

struct ShardReport {
  struct Operator {
    int32_t node = -1;
    std::string name;         // "Net/fc1/MatMul:31"
    std::string strategy;     // "((2,4),(4,1))"
    std::string layout;       // of its first output: "[a, -] sum(bc)"
    std::string moves;        // what brings its inputs and takes back their gradients: "reduce_scatter, all_gather"
    int64_t bytes = 0;        // that one device receives for it
    int64_t memory = 0;       // of its outputs, kept on one device
    double seconds = 0;       // arithmetic of one device, forward and backward
    bool arithmetic = false;  // a product, a convolution: what strategies are given to
  };
  struct Parameter {
    std::string name, type, layout;
    int64_t bytes = 0;  // on one device
  };
  std::vector<Operator> operators;    // forward, inputs aside; of micro-batches the first one's
  std::vector<Parameter> parameters;  // and state
  double seconds = 0, compute_seconds = 0;
  int64_t bytes = 0;   // received by one device
  int64_t memory = 0;  // kept on one device, as the search's model has it
};

// `plan` is of `graph`, made with `options`; `resharder` has the cluster's links.
StatusOr<ShardReport> ReportOf(const Graph& graph, const ShardPlan& plan, const PropagateOptions& options,
                               const Cluster& cluster, Resharder& resharder);

// Cell, operator and line of the recipe, "Net/fc1/MatMul:31", as far as they are known.
std::string PlaceOf(const Node& node);

// What a step would take with other strategies for one node, everything else as `predict` makes it best.
struct Alternative {
  std::string strategy;
  double seconds = 0;
  int64_t memory = 0;
  bool fits = true;  // false: within the memory there is no plan
};
struct Prediction {
  double seconds = 0;
  int64_t memory = 0;
};
// Every strategy that `node` can have, the fastest first. `predict`: what a plan of a graph with users' strategies
// takes; RESOURCE_EXHAUSTED: too much memory.
StatusOr<std::vector<Alternative>> AlternativesOf(const Graph& graph, const Mesh& mesh, int32_t node,
                                                  const std::function<StatusOr<Prediction>(const Graph&)>& predict);

}  // namespace mslua
