// Copies a graph node by node while values are replaced: the frame of most passes.
#pragma once

#include <vector>

#include "core/graph/builder.h"

namespace mslua {

class Rewriter {
 public:
  explicit Rewriter(const Graph& from) : from_(from), map_(from.nodes.size()) {
    to_.graph().name = from.name;
    for (size_t i = 0; i < from.nodes.size(); ++i) map_[i].resize(from.nodes[i].outputs.size());
  }
  GraphBuilder& to() { return to_; }
  // What stands for `old` in the new graph.
  Value Map(Value old) const { return map_[old.node][old.output]; }
  std::vector<Value> MapInputs(const Node& node) const {
    std::vector<Value> out;
    for (Value v : node.inputs) out.push_back(Map(v));
    return out;
  }
  void Replace(Value old, Value with) { map_[old.node][old.output] = with; }
  // Copies node `i` over its mapped inputs.
  void Copy(int32_t i) {
    const Node& n = from_.nodes[i];
    const std::vector<Value> out = to_.Clone(n, MapInputs(n));
    for (size_t o = 0; o < out.size(); ++o) map_[i][o] = out[o];
  }
  // The new graph with the old one's outputs and the marks of its gradients. A pass that breaks a graph is a bug: it
  // aborts with the message.
  Graph Finish();

 private:
  const Graph& from_;
  GraphBuilder to_;
  std::vector<std::vector<Value>> map_;
};

}  // namespace mslua
