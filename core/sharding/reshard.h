// From one layout of a tensor to another: the cheapest chain of slices and collectives under alpha-beta costs. The
// steps that are costed are the steps that run (EmitReshard), so that cost and execution cannot differ.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/graph/builder.h"
#include "core/sharding/layout.h"
#include "core/sharding/link_costs.h"
#include "core/sharding/move_bound.h"

namespace mslua {

enum class Move { kSlice, kReduceScatter, kPermute, kAllToAll, kAllReduce, kAllGather, kExchange };
// The operator's name in the IR: "strided_slice", "reduce_scatter", ...
const char* Name(Move kind);

struct ReshardStep {
  Move kind;
  AxisList axes;      // the group: the axes that move, major to minor
  int from_dim = -1;  // all_gather, all_to_all: the dimension that is joined
  int to_dim = -1;    // slice, reduce_scatter, all_to_all: the dimension that is sharded
  Layout before, after;
};

// What one step costs a device that has `bytes` bytes before it.
struct StepCost {
  double seconds = 0;
  double bytes_received = 0;
};
StepCost CostOf(const Mesh& mesh, const LinkCosts& links, const ReshardStep& step, double bytes);

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double seconds = 0;
  double bytes_received = 0;  // by one device
  int64_t peak_bytes = 0;     // the most that a step's input and output need together
};

// Plans of one mesh, remembered. Not for two threads at once.
class Resharder {
 public:
  explicit Resharder(Mesh mesh, LinkCosts links = {});

  // `type` is the whole tensor's. Both layouts must divide it, and `to` may be partial only where `from` is. The plan
  // lives as long as the Resharder.
  StatusOr<const ReshardPlan*> Plan(const Layout& from, const Layout& to, const TensorType& type);

  const Mesh& mesh() const { return mesh_; }
  const LinkCosts& links() const { return links_; }

 private:
  StatusOr<std::unique_ptr<ReshardPlan>> Make(const Layout& from, const Layout& to, const TensorType& type) const;

  Mesh mesh_;
  LinkCosts links_;
  std::vector<AxisKind> kinds_;
  MoveBound bound_;
  absl::flat_hash_map<std::tuple<Layout, Layout, Shape, int64_t>, std::unique_ptr<ReshardPlan>> plans_;
};

// Emits the plan's steps on `x`, the part that `rank` has of a tensor of `type`.
Value EmitReshard(GraphBuilder& g, const Mesh& mesh, int64_t rank, const ReshardPlan& plan, Value x,
                  const TensorType& type);

}  // namespace mslua
