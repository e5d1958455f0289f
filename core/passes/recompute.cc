// Two passes that compute results of the forward pass again where the backward pass reads them, instead of keeping them
// from one to the other.
//
// What a recomputation region makes (Node::region; Cell:recompute) is made again from what enters the region: Chen et
// al., "Training Deep Nets with Sublinear Memory Cost", 2016. Kept are what the forward pass reads outside the region,
// and what other ranks have sent.
//
// Cheap elementwise results are made again without being asked for. relu(x * a + b) is a map of a convolution's result,
// which the normalisation's gradient keeps in memory anyway: what the next convolution's weight gradient reads can be
// made again from it, in one pass over memory, and half of the activations of a convolutional network need not be kept.
#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/op/formula.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// Fusion does not mix regions: what is made again must not be made in the forward pass. Both are added to a node's own.
constexpr int32_t kAgain = 1 << 20, kBackward = 2 << 20;

constexpr char kAgainScope[] = "recompute(";

bool IsBackward(const Node& n) {
  return n.location &&
         (absl::StartsWith(n.location->scope, "grad(") || absl::StartsWith(n.location->scope, kAgainScope));
}

// Copies node `i` of the backward pass over other inputs.
void CopyBackward(Rewriter* rewriter, const Graph& graph, int32_t i, const std::vector<Value>& inputs) {
  Node n = graph.nodes[i];
  n.region += kBackward;
  const std::vector<Value> out = rewriter->to().Clone(n, inputs);
  for (int32_t o = 0; o < static_cast<int32_t>(out.size()); ++o) rewriter->Replace({i, o}, out[o]);
}

class RegionRecomputer {
 public:
  // `last`: the last node of the backward pass. What follows are updates.
  RegionRecomputer(const Graph& graph, int32_t last)
      : graph_(graph),
        rewriter_(graph),
        late_(graph.nodes.size()),
        kept_(graph.nodes.size()),
        again_(graph.nodes.size()) {
    const auto count = static_cast<int32_t>(graph.nodes.size());
    for (int32_t i = 0; i < count; ++i) late_[i] = i > last || IsBackward(graph.nodes[i]);
    FindKept();
  }

  Graph Run() {
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      if (!late_[i]) {
        rewriter_.Copy(i);
        continue;
      }
      std::vector<Value> inputs;
      for (Value v : graph_.nodes[i].inputs) inputs.push_back(Late(v));
      CopyBackward(&rewriter_, graph_, i, inputs);
    }
    return EliminateDeadNodes(rewriter_.Finish());
  }

 private:
  void FindKept() {
    for (const GraphOutput& o : graph_.outputs) kept_[o.value.node] = true;
    for (int32_t i = static_cast<int32_t>(graph_.nodes.size()) - 1; i >= 0; --i) {
      const Node& n = graph_.nodes[i];
      kept_[i] = kept_[i] || n.op->side_effect;
      if (kept_[i] && n.op->view) kept_[n.inputs[0].node] = true;
      if (late_[i]) continue;
      for (Value v : n.inputs) kept_[v.node] = kept_[v.node] || n.region != graph_.nodes[v.node].region;
    }
  }

  bool IsMadeAgain(int32_t i) const { return graph_.nodes[i].region != 0 && !late_[i] && !kept_[i]; }

  // What a node of the backward pass reads for a value.
  Value Late(Value v) {
    if (!IsMadeAgain(v.node)) return rewriter_.Map(v);
    MakeAgain(v.node);
    return again_[v.node][v.output];
  }

  // Makes a node again, with what it needs.
  void MakeAgain(int32_t node) {
    std::set<int32_t> nodes;
    std::vector<int32_t> wanted = {node};
    while (!wanted.empty()) {
      const int32_t i = wanted.back();
      wanted.pop_back();
      if (!IsMadeAgain(i) || !again_[i].empty() || !nodes.insert(i).second) continue;
      for (Value v : graph_.nodes[i].inputs) wanted.push_back(v.node);
    }
    for (int32_t i : nodes) {
      Node n = graph_.nodes[i];
      std::vector<Value> inputs;
      for (Value v : n.inputs) inputs.push_back(IsMadeAgain(v.node) ? again_[v.node][v.output] : rewriter_.Map(v));
      n.region = kBackward;
      auto location = std::make_shared<Location>(n.location ? *n.location : Location());
      location->scope = absl::StrCat(kAgainScope, location->scope, ")");
      n.location = std::move(location);
      again_[i] = rewriter_.to().Clone(n, inputs);
    }
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<bool> late_;                 // of a node: of the backward pass, or after it
  std::vector<bool> kept_;                 // of a node: until the backward pass
  std::vector<std::vector<Value>> again_;  // of a node: what was made again
};

class Recomputer {
 public:
  Recomputer(const Graph& graph, int64_t small)
      : graph_(graph),
        rewriter_(graph),
        small_(small),
        late_(graph.nodes.size()),
        ways_(graph.nodes.size(), Way::kUnknown) {
    const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), IsBackward);
    backward_ = static_cast<int32_t>(first - graph.nodes.begin());
    FindLateReaders();
  }

  // How many bytes need not be kept.
  int64_t Saved() {
    int64_t sum = 0;
    for (int32_t i = 0; i < backward_; ++i) {
      if (!graph_.nodes[i].op->view && late_[i] && WayOf(i) == Way::kAgain) sum += graph_.nodes[i].outputs[0].bytes();
    }
    return sum;
  }

  Graph Run() {
    for (int32_t i = 0; i < backward_; ++i) rewriter_.Copy(i);
    for (int32_t i = backward_; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      std::vector<Value> inputs;
      for (Value v : graph_.nodes[i].inputs) inputs.push_back(v.node < backward_ ? Late(v) : rewriter_.Map(v));
      CopyBackward(&rewriter_, graph_, i, inputs);
    }
    return EliminateDeadNodes(rewriter_.Finish());
  }

 private:
  // How the backward pass gets a value of the forward pass: as it was kept, or made again.
  enum class Way : uint8_t { kUnknown, kKept, kAgain };

  // Values of the forward pass that the backward pass reads, themselves or by a view.
  void FindLateReaders() {
    for (int32_t i = static_cast<int32_t>(graph_.nodes.size()) - 1; i >= 0; --i) {
      const Node& n = graph_.nodes[i];
      if (i < backward_ && !(n.op->view && late_[i])) continue;
      for (Value v : n.inputs) late_[v.node] = true;
    }
    for (const GraphOutput& o : graph_.outputs) ways_[o.value.node] = Way::kKept;
  }

  // Arithmetic that costs less than the memory it works on.
  static bool Cheap(const Node& n) {
    const auto program = FormulaProgram(*n.op, n.attrs);
    return program.ok() && std::all_of(program->code.begin(), program->code.end(),
                                       [](const ScalarInstr& i) { return CostOf(i.op) <= 1; });
  }

  // An operand that is there in the backward pass without being kept for it.
  bool IsThere(int32_t i) const {
    const Node& n = graph_.nodes[i];
    if (n.op->name == "input" || n.op->name == "constant") return true;
    return n.outputs[0].bytes() < small_ || (n.op->name == "broadcast_to" && IsThere(n.inputs[0].node));
  }

  Way WayOf(int32_t i) {
    if (ways_[i] == Way::kUnknown) ways_[i] = CanBeMadeAgain(graph_.nodes[i], i) ? Way::kAgain : Way::kKept;
    return ways_[i];
  }
  // From operands of which at least one is a large value that is kept for others: a parameter's cast to 16 bits is not
  // worth another pass over the parameter.
  bool CanBeMadeAgain(const Node& n, int32_t i) {
    if (n.op->view) return WayOf(n.inputs[0].node) == Way::kAgain;
    if (n.op->formula.empty() || n.outputs.size() != 1 || IsThere(i) || !Cheap(n)) return false;
    bool from_kept = false;
    for (Value v : n.inputs) {
      if (IsThere(v.node)) continue;
      if (WayOf(v.node) == Way::kKept && !late_[v.node]) return false;
      from_kept = true;
    }
    return from_kept;
  }

  // What a node of the backward pass reads for value `v` of the forward pass.
  Value Late(Value v) {
    if (WayOf(v.node) != Way::kAgain) return rewriter_.Map(v);
    if (const auto it = again_.find(v); it != again_.end()) return it->second;
    Node n = graph_.nodes[v.node];
    std::vector<Value> inputs;
    for (Value in : n.inputs) inputs.push_back(Late(in));
    n.region += kAgain;
    return again_[v] = rewriter_.to().Clone(n, inputs)[0];
  }

  const Graph& graph_;
  Rewriter rewriter_;
  const int64_t small_;
  int32_t backward_ = 0;    // the first node of the backward pass
  std::vector<bool> late_;  // of a node: the backward pass reads it
  std::vector<Way> ways_;   // of a node
  absl::flat_hash_map<Value, Value> again_;
};

}  // namespace

Graph RecomputeRegions(const Graph& graph) {
  const std::vector<Node>& nodes = graph.nodes;
  const auto last = std::find_if(nodes.rbegin(), nodes.rend(), IsBackward);
  const bool any = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.region != 0; });
  if (last == nodes.rend() || !any) return graph;
  return RegionRecomputer(graph, static_cast<int32_t>(nodes.rend() - last) - 1).Run();
}

Graph RecomputeElementwise(const Graph& graph, const RecomputeRule& rule) {
  Recomputer recomputer(graph, rule.small_bytes);
  return recomputer.Saved() >= rule.worthwhile_bytes ? recomputer.Run() : graph;
}

}  // namespace mslua
