// Cheap elementwise results of the forward pass are computed again where the backward pass reads them, instead of being
// kept from one to the other. relu(x * a + b) is a map of a convolution's result, which the normalisation's gradient
// keeps in memory anyway: what the next convolution's weight gradient reads can be made again from it, in one pass over
// memory, and half of the activations of a convolutional network need not be kept.
#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "core/op/formula.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

// Fusion does not mix regions: what is made again must not be made in the forward pass. Both are added to a node's own.
constexpr int32_t kAgain = 1 << 20, kBackward = 2 << 20;

class Recomputer {
 public:
  Recomputer(const Graph& graph, int64_t small)
      : graph_(graph),
        rewriter_(graph),
        small_(small),
        late_(graph.nodes.size()),
        ways_(graph.nodes.size(), Way::kUnknown) {
    const auto in_gradient = [](const Node& n) { return n.location && absl::StartsWith(n.location->scope, "grad("); };
    const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), in_gradient);
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
      Node n = graph_.nodes[i];
      std::vector<Value> inputs;
      for (Value v : n.inputs) inputs.push_back(v.node < backward_ ? Late(v) : rewriter_.Map(v));
      n.region += kBackward;
      const std::vector<Value> out = rewriter_.to().Clone(n, inputs);
      for (int32_t o = 0; o < static_cast<int32_t>(out.size()); ++o) rewriter_.Replace({i, o}, out[o]);
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

Graph RecomputeElementwise(const Graph& graph, const RecomputeRule& rule) {
  Recomputer recomputer(graph, rule.small_bytes);
  return recomputer.Saved() >= rule.worthwhile_bytes ? recomputer.Run() : graph;
}

}  // namespace mslua
