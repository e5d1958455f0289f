#include "core/sharding/search/needless_shards.h"

#include <algorithm>
#include <map>

namespace mslua {
namespace {

class NeedlessShards {
 public:
  NeedlessShards(const Graph& graph, const Mesh& mesh, ForwardGraph* forward)
      : graph_(graph), mesh_(mesh), forward_(*forward), in_(graph.nodes.size()), out_(graph.nodes.size()) {
    for (const ForwardGraph::Edge& e : forward_.edges) {
      in_[e.reader].push_back(&e);
      out_[e.value.node].push_back(&e);
    }
  }

  void LeaveWhole(int32_t node) {
    if (in_[node].size() != 1 || out_[node].size() != 1 || !OnlyMoves(node)) return;
    const ForwardGraph::Edge &in = *in_[node][0], &out = *out_[node][0];
    if (out_[in.value.node].size() != 1 || in.gradient != out.gradient) return;
    const NodeRule &maker = forward_.rules[in.value.node], &reader = forward_.rules[out.reader];
    const FactorRule::Tensor &made = maker.rule.outputs[in.value.output], &read = reader.rule.inputs[out.input];
    if (MayLeaveOut(maker, made) || MayLeaveOut(reader, read)) return;
    NodeRule& rule = forward_.rules[node];
    for (size_t f = 0; f < rule.sizes.size(); ++f) {
      const int factor = static_cast<int>(f);
      if (!Shards(maker, made, rule, rule.rule.inputs[0], factor) &&
          !Shards(reader, read, rule, rule.rule.outputs[0], factor))
        rule.rule.factors[f].whole = true;
    }
  }

 private:
  // Every element of the input once to the output.
  bool OnlyMoves(int32_t node) const {
    const Node& n = graph_.nodes[node];
    const FactorRule& rule = forward_.rules[node].rule;
    return n.inputs.size() == 1 && n.outputs.size() == 1 && !n.op->flops &&
           n.outputs[0].bytes() == graph_.TypeOf(n.inputs[0]).bytes() &&
           std::all_of(rule.factors.begin(), rule.factors.end(),
                       [](const FactorRule::Factor& f) { return f.in_input && f.in_output; });
  }
  bool MayShard(const NodeRule& rule, int f) const {
    for (int a = 0; a < mesh_.axes(); ++a) {
      if (CanShard(rule, f, mesh_.size(a))) return true;
    }
    return false;
  }
  // Whether a sharding may shard a factor that the tensor does not have: then the tensor, or its gradient, is partial.
  bool MayLeaveOut(const NodeRule& rule, const FactorRule::Tensor& tensor) const {
    for (size_t f = 0; f < rule.sizes.size(); ++f) {
      if (!HasFactor(tensor, static_cast<int>(f)) && MayShard(rule, static_cast<int>(f))) return true;
    }
    return false;
  }
  // Whether a neighbour can shard a dimension of `theirs` that is sharded, as `ours`, where `factor` is.
  bool Shards(const NodeRule& neighbour, const FactorRule::Tensor& theirs, const NodeRule& rule,
              const FactorRule::Tensor& ours, int factor) const {
    for (size_t d = 0; d < ours.size(); ++d) {
      if (rule.ShardedFactor(ours[d]) != factor) continue;
      const int f = neighbour.ShardedFactor(theirs[d]);
      if (f >= 0 && MayShard(neighbour, f)) return true;
    }
    return false;
  }

  const Graph& graph_;
  const Mesh& mesh_;
  ForwardGraph& forward_;
  std::vector<std::vector<const ForwardGraph::Edge*>> in_, out_;  // by node
};

}  // namespace

void LeaveWhole(const Graph& graph, const Mesh& mesh, const Cluster& cluster, const std::vector<bool>& keeps,
                ForwardGraph* forward) {
  // An operator reads and writes each byte; arithmetic of one operation for four bytes takes less than that.
  const double traffic = 2 / cluster.bytes_per_second;
  if (cluster.links.Fastest().beta < traffic || 0.25 / cluster.flops_per_second.Least() > traffic) return;
  NeedlessShards needless(graph, mesh, forward);
  std::map<std::pair<int, std::vector<bool>>, int> known;  // nodes of one kind may now be sharded in different ways
  for (size_t p = 0; p < forward->nodes.size(); ++p) {
    const int32_t i = forward->nodes[p];
    if (!keeps[i]) needless.LeaveWhole(i);
    std::vector<bool> whole;
    for (const FactorRule::Factor& f : forward->rules[i].rule.factors) whole.push_back(f.whole);
    forward->kinds[p] =
        known.emplace(std::make_pair(forward->kinds[p], whole), static_cast<int>(known.size())).first->second;
  }
}

}  // namespace mslua
