// Reshapes between elementwise operators break chains that fusion would make one. An elementwise operator over
// a reshaped operand of fewer dimensions works in those, and its result is reshaped instead: reshapes move down, to
// operators that care about them.
#include <optional>

#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

class Flattener {
 public:
  explicit Flattener(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!Visit(static_cast<int32_t>(i))) rewriter_.Copy(static_cast<int32_t>(i));
    }
    return rewriter_.Finish();
  }

 private:
  GraphBuilder& g() { return rewriter_.to(); }
  const Node& NodeOf(Value v) { return g().NodeOf(v); }

  // The shape that the operands are reshaped from: fewer dimensions, the last one the same.
  std::optional<Shape> FlatShape(const std::vector<Value>& inputs, const Shape& shape) {
    for (Value v : inputs) {
      const Node& n = NodeOf(v);
      if (n.op->name != "reshape") continue;
      const Shape& from = g().TypeOf(n.inputs[0]).shape;
      if (!from.empty() && from.size() < shape.size() && from.back() == shape.back()) return from;
    }
    return std::nullopt;
  }

  // `v` in the flat shape, by a view or a broadcast; nothing where that would move elements.
  std::optional<Value> Flat(Value v, const Shape& flat) {
    const Node& n = NodeOf(v);
    if (n.op->name == "reshape" && g().TypeOf(n.inputs[0]).shape == flat) return n.inputs[0];
    if (n.op->name != "broadcast_to") return Reshape(g(), v, flat);
    const Value small = n.inputs[0];
    Shape kept = g().TypeOf(small).shape;
    while (!kept.empty() && kept[0] == 1) kept.erase(kept.begin());
    const bool over_last = kept.size() == 1 && kept[0] == flat.back();
    if (!kept.empty() && !over_last) return std::nullopt;
    return BroadcastTo(g(), Reshape(g(), small, kept), flat);
  }

  bool Visit(int32_t i) {
    const Node& n = graph_.nodes[i];
    if (n.op->formula.empty() || n.outputs.size() != 1) return false;
    const std::vector<Value> inputs = rewriter_.MapInputs(n);
    const std::optional<Shape> flat = FlatShape(inputs, n.outputs[0].shape);
    if (!flat) return false;
    std::vector<Value> moved;
    for (Value v : inputs) {
      const std::optional<Value> f = Flat(v, *flat);
      if (!f) return false;
      moved.push_back(*f);
    }
    rewriter_.Replace({i, 0}, Reshape(g(), g().Clone(n, moved)[0], n.outputs[0].shape));
    return true;
  }

  const Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

Graph FlattenElementwise(const Graph& graph) { return EliminateDeadNodes(Flattener(graph).Run()); }

}  // namespace mslua
