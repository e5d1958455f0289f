// What a sharding of a graph's forward part costs a step, as a sum over nodes and edges (the model that a strategy
// search minimises). Backward follows forward: no backward nodes are looked at.
#pragma once

#include <vector>

#include "core/sharding/forward_graph.h"
#include "core/sharding/move_bound.h"
#include "core/sharding/plan.h"
#include "core/sharding/search/cluster.h"
#include "core/sharding/sharding.h"

namespace mslua {

// Whole numbers, so that sums do not depend on their order.
struct Cost {
  int64_t picoseconds = 0;
  int64_t bytes = 0;   // received by one device
  int64_t memory = 0;  // bytes kept on one device: parameters, gradients, state, activations

  Cost& operator+=(const Cost& b) {
    picoseconds += b.picoseconds;
    bytes += b.bytes;
    memory += b.memory;
    return *this;
  }
};

// Of one graph on one mesh.
class CostModel {
 public:
  CostModel(const Graph& graph, const ForwardGraph& forward, const Cluster& cluster, Resharder& resharder);

  // Forward and backward arithmetic of a node, or what its memory traffic takes where that is more; of a parameter its
  // update. The devices along axes that shard nothing repeat the work.
  Cost OfNode(int32_t node, const Sharding& sharding) const;
  // The least that OfNode can be, whatever the sharding.
  int64_t NodeBound(int32_t node) const;
  // What OfNode is at least if all axes but those of `sharding` shard the node's tensors in `others` parts. Shares of
  // groups of axes, each less the share with all axes, and that one sum to no more than OfNode.
  Cost Share(int32_t node, const Sharding& sharding, int64_t others) const;
  // The part of NodeBound behind which gradients of the node's parameters travel.
  int64_t HiddenBound(int32_t node) const;
  // Backward arithmetic alone, behind which the node's gradients of parameters travel.
  int64_t Backward(int32_t node, const Sharding& sharding) const;

  // What moves along an edge in the two directions: the value to where it is wanted, its gradient to where it was made.
  struct Transfer {
    Layout from, to;
  };
  Transfer ForwardMove(const ForwardGraph::Edge& edge, const Sharding& maker, const Sharding& reader) const;
  Transfer BackwardMove(const ForwardGraph::Edge& edge, const Sharding& maker, const Sharding& reader) const;
  // The plan of a move.
  StatusOr<Cost> Exact(const Transfer& move, const TensorType& type) const;
  // No plan of the move costs less: at least the bytes that a device lacks, from at least so many others.
  Cost Bound(const Transfer& move, const TensorType& type) const;
  // The two moves of an edge together. A parameter's gradient costs what its reader's backward arithmetic does not
  // hide.
  int64_t Joined(const ForwardGraph::Edge& edge, int64_t forward, int64_t backward, int64_t hidden) const {
    return forward + (forward_.data[edge.value.node] ? backward : std::max<int64_t>(0, backward - hidden));
  }

 private:
  double ForwardSeconds(int32_t node, double parts, double bytes) const;
  double RateOf(int32_t node) const;
  double LaunchSeconds(int32_t node) const;
  double LocalBytes(int32_t node, const Sharding& sharding) const;
  double LocalOutputs(int32_t node, const Sharding& sharding) const;
  double UpdateSeconds(double bytes) const;
  double FinestBytes(int32_t parameter, const Sharding& sharding) const;

  const Graph& graph_;
  const ForwardGraph& forward_;
  const Cluster& cluster_;
  Resharder& resharder_;
  MoveBound move_bound_;
  std::vector<double> flops_;          // by node; of forward nodes
  std::vector<int> gradients_wanted_;  // by node: how many passes over its tensors its gradients take
};

// The cost of a whole assignment, edge by edge and without tables. `shardings` by node of the graph.
struct CostReport {
  Cost total;
  int64_t compute_picoseconds = 0;
};
StatusOr<CostReport> Evaluate(const Graph& graph, const ForwardGraph& forward, const CostModel& model,
                              const std::vector<Sharding>& shardings);

}  // namespace mslua
