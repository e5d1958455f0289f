#include "core/sharding/micro_batches.h"

#include <algorithm>

#include "core/op/marks.h"

namespace mslua {
namespace {

int64_t NumberOf(const Node& n) {
  const int64_t* number = mark::kMicroBatch.Find(n.attrs);
  return number == nullptr ? -1 : *number;
}

bool Repeats(const Node& n, const Node& first) {
  return n.op == first.op && n.outputs == first.outputs && n.inputs.size() == first.inputs.size();
}

// By node: the node of the first micro-batch that it repeats, -1: none. Each micro-batch has its nodes in the order of
// the first, which may have some more: what is made once. Empty where that does not hold, or with one micro-batch.
std::vector<int32_t> RepeatedBy(const Graph& graph) {
  std::vector<int32_t> first, repeated(graph.nodes.size(), -1);
  std::vector<size_t> next;  // by micro-batch: the place in `first` behind the last node that is repeated
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    if (NumberOf(graph.nodes[i]) == 0) first.push_back(i);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int64_t number = NumberOf(graph.nodes[i]);
    if (number <= 0) continue;
    next.resize(std::max(next.size(), static_cast<size_t>(number) + 1), 0);
    size_t& at = next[static_cast<size_t>(number)];
    while (at < first.size() && !Repeats(graph.nodes[i], graph.nodes[first[at]])) ++at;
    if (at == first.size()) return {};
    repeated[i] = first[at++];
  }
  return next.empty() ? std::vector<int32_t>() : repeated;
}

}  // namespace

void MarkMicroBatches(absl::Span<const MicroBlock> blocks, Graph* graph) {
  const bool several = std::any_of(blocks.begin(), blocks.end(), [](const MicroBlock& b) { return b.micro > 0; });
  for (const MicroBlock& b : blocks) {
    for (int32_t i = b.begin; i < b.end && several && !b.backward; ++i) {
      if (graph->nodes[i].op->name != "input") mark::kMicroBatch.Set(graph->nodes[i].attrs, b.micro);
    }
  }
}

absl::optional<FirstMicroBatch> FirstMicroBatchOf(const Graph& graph) {
  const std::vector<int32_t> repeated = RepeatedBy(graph);
  if (repeated.empty()) return absl::nullopt;
  FirstMicroBatch first;
  first.graph.name = graph.name;
  first.of.assign(graph.nodes.size(), -1);
  const auto left_out = [&](Value v) { return first.of[v.node] < 0 || repeated[v.node] >= 0; };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (repeated[i] >= 0) {
      first.of[i] = first.of[repeated[i]];
      continue;
    }
    Node n = graph.nodes[i];
    if (std::any_of(n.inputs.begin(), n.inputs.end(), left_out)) continue;
    for (Value& v : n.inputs) v.node = first.of[v.node];
    if (const int64_t* origin = mark::kOrigin.Find(n.attrs)) {
      const int32_t here = first.of[*origin];
      if (here < 0) continue;
      mark::kOrigin.Set(n.attrs, int64_t{here});
    }
    first.of[i] = static_cast<int32_t>(first.graph.nodes.size());
    first.graph.nodes.push_back(std::move(n));
  }
  for (const GraphOutput& o : graph.outputs) {
    if (!left_out(o.value))
      first.graph.outputs.push_back({o.name, {first.of[o.value.node], o.value.output}, o.updates});
  }
  return first;
}

}  // namespace mslua
