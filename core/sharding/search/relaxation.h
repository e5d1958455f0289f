// A relaxation of strategy search that is small on any mesh. It decides only how many axes of each kind shard each
// factor, and every edge takes the axes that suit it best. No plan costs less than its minimum.
#pragma once

#include <vector>

#include "core/sharding/search/assignment.h"
#include "core/sharding/search/cost.h"

namespace mslua {

// What nodes may be, by position in ForwardGraph::nodes.
struct Freedom {
  std::vector<const std::vector<Sharding>*> only;  // null: any sharding
  bool widest = false;  // nodes that depend on data are sharded in as many parts as they allow
};

// Counts how many axes of each kind of a sharding shard each factor, as a text that is equal for those that differ in
// the axes only.
std::string CountsOf(const std::vector<AxisKind>& kinds, const Sharding& sharding);

struct Relaxed {
  int64_t bound = 0;  // no plan has a lower value
  // By position. Empty when the kinds of axes were solved one by one, which only bounds their sum.
  std::vector<Sharding> shardings;  // how the relaxed minimum shards, along any axes of the right kinds
  // The least value of any relaxed plan in which the node is sharded so often; empty too where that is too much work.
  std::vector<std::vector<std::pair<Sharding, int64_t>>> least;
};

class Relaxation {
 public:
  Relaxation(const Graph& graph, const ForwardGraph& forward, const Cluster& cluster, const CostModel& model,
             const Mesh& mesh);
  // `marginals`: wants `least`. RESOURCE_EXHAUSTED when even this is too large.
  StatusOr<Relaxed> Solve(const Freedom& freedom, const Weights& weights, bool marginals) const;
  // Betters `shardings`, by position, kind by kind until none changes anything; what the relaxed plan then costs.
  StatusOr<int64_t> Improve(const Freedom& freedom, const Weights& weights, std::vector<Sharding>* shardings) const;
  const std::vector<AxisKind>& kinds() const { return kinds_; }
  // Every sharding that differs from `s` in the axes only; more than `limit`: none.
  std::vector<Sharding> Alike(const Sharding& s, size_t limit) const;

 private:
  StatusOr<Relaxed> OneByOne(const Freedom& freedom, const Weights& weights) const;

  const Graph& graph_;
  const ForwardGraph& forward_;
  const Cluster& cluster_;
  const CostModel& model_;
  const Mesh& mesh_;
  std::vector<AxisKind> kinds_;
};

}  // namespace mslua
