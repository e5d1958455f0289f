// The sharding of one node: which mesh axes shard each factor of its rule. From it follow the layouts that the node
// wants of its inputs and leaves its outputs in.
#pragma once

#include <vector>

#include "core/graph/graph.h"
#include "core/sharding/layout.h"

namespace mslua {

// The factor rule of a node with the size of each factor.
struct NodeRule {
  FactorRule rule;
  Shape sizes;  // of rule.factors; 1 where nothing says

  // The factor that is sharded when dimension `dim` of a tensor is: the first whose size is not 1; -1: none has.
  int ShardedFactor(const FactorRule::Dim& dim) const;
};
StatusOr<NodeRule> RuleOf(const Graph& graph, const Node& node);
// Whether a dimension of the tensor has factor `f`.
bool HasFactor(const FactorRule::Tensor& tensor, int f);

struct Sharding {
  std::vector<AxisList> factors;  // axes of each factor of the rule, major to minor

  Sharding() = default;
  explicit Sharding(const NodeRule& rule) : factors(rule.rule.factors.size()) {}
  friend bool operator==(const Sharding& a, const Sharding& b) { return a.factors == b.factors; }
};

// Whether factor `f` may be sharded in `parts`: it is not marked `!`, its size divides, and wherever it is a part of a
// compound dimension nothing lies before it.
bool CanShard(const NodeRule& rule, int f, int64_t parts);
// OK, or which factor is sharded wrongly, or which axis is used twice.
Status CheckSharding(const Mesh& mesh, const NodeRule& rule, const Sharding& sharding);

// The layout in which a node of that sharding takes input `i`.
Layout InputLayout(const NodeRule& rule, const Sharding& sharding, size_t i);
// The layout in which it leaves output `o`: partial over the axes of factors that only its inputs have.
Layout OutputLayout(const NodeRule& rule, const Sharding& sharding, size_t o);
// The layout in which its backward part leaves the gradient of input `i`: a sum over every factor that the input does
// not have.
Layout GradientLayout(const NodeRule& rule, const Sharding& sharding, size_t i);

// Every legal sharding whose factors take their axes in mesh order; the replicated one is first. At most `limit`.
std::vector<Sharding> Candidates(const Mesh& mesh, const NodeRule& rule, size_t limit = 4096);

}  // namespace mslua
