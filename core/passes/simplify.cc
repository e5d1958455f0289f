#include <cstring>
#include <optional>

#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      const Value same = Simpler(n, rewriter_.MapInputs(n));
      if (same.valid())
        rewriter_.Replace({static_cast<int32_t>(i), 0}, same);
      else
        rewriter_.Copy(static_cast<int32_t>(i));
    }
    return rewriter_.Finish();
  }

 private:
  GraphBuilder& g() { return rewriter_.to(); }
  const Node& NodeOf(Value v) { return g().NodeOf(v); }

  // The number that every element of `v` is, looking through broadcasts and casts.
  std::optional<double> SplatOf(Value v) {
    const Node* n = &NodeOf(v);
    while (n->op->name == "broadcast_to" || (n->op->name == "cast" && IsFloat(n->outputs[0].dtype)))
      n = &NodeOf(n->inputs[0]);
    if (n->op->name != "constant" || n->outputs[0].elements() != 1) return std::nullopt;
    return LoadAsDouble(n->outputs[0].dtype, n->attrs.Str("data").data(), 0);
  }
  bool IsSplat(Value v, double number) { return SplatOf(v) == number; }

  // Something in the new graph that equals the node over these inputs, or an invalid Value. x*0 is not 0 for infinite
  // x: such rules are not here.
  Value Simpler(const Node& n, const std::vector<Value>& in) {
    const std::string& op = n.op->name;
    if (op == "mul") {
      if (IsSplat(in[1], 1)) return in[0];
      if (IsSplat(in[0], 1)) return in[1];
    } else if (op == "add") {
      // x + -0 is x for every x; x + 0 turns -0 into 0, which compares equal.
      if (IsSplat(in[1], 0)) return in[0];
      if (IsSplat(in[0], 0)) return in[1];
    } else if (op == "sub") {
      if (IsSplat(in[1], 0)) return in[0];
    } else if (op == "div") {
      if (IsSplat(in[1], 1)) return in[0];
    } else if (op == "neg") {
      if (NodeOf(in[0]).op->name == "neg") return NodeOf(in[0]).inputs[0];
    } else if (op == "cast") {
      if (g().TypeOf(in[0]) == n.outputs[0]) return in[0];
    } else if (op == "reshape" || op == "broadcast_to") {
      if (g().TypeOf(in[0]) == n.outputs[0]) return in[0];
      if (NodeOf(in[0]).op->name == op) return Again(n, NodeOf(in[0]).inputs[0]);
    } else if (op == "transpose") {
      return SimplerTranspose(n, in[0]);
    } else if (op == "matmul") {
      return MatmulOfTranspose(n, in);
    } else if (op == "stop_gradient") {
      return in[0];
    } else if (op == "concat") {
      return WholeOfSplit(n, in);
    }
    return FoldedScalar(n, in);
  }

  // All parts of a split, put together again as they were.
  Value WholeOfSplit(const Node& n, const std::vector<Value>& in) {
    const Node& split = NodeOf(in[0]);
    if (split.op->name != "split" || split.outputs.size() != in.size() ||
        split.attrs.Int("axis") != n.attrs.Int("axis"))
      return {};
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] != Value{in[0].node, static_cast<int32_t>(i)}) return {};
    }
    return split.inputs[0];
  }

  // One number of an elementwise operator over constants.
  Value FoldedScalar(const Node& n, const std::vector<Value>& in) {
    if (!n.op->elementwise || n.outputs.size() != 1 || n.outputs[0].elements() != 1 || !n.op->reference) return {};
    std::vector<TensorView> operands;
    for (Value v : in) {
      const Node& c = NodeOf(v);
      if (c.op->name != "constant" || c.outputs[0].elements() != 1) return {};
      operands.push_back({c.outputs[0], const_cast<char*>(c.attrs.Str("data").data())});
    }
    std::string bytes(static_cast<size_t>(n.outputs[0].bytes()), '\0');
    const TensorView result = {n.outputs[0], &bytes[0]};
    if (!n.op->reference({n.attrs, operands, {result}}).ok()) return {};
    return g().Literal(n.outputs[0], std::move(bytes));
  }

  // The node's operator over another input.
  Value Again(const Node& n, Value input) { return g().Clone(n, {input})[0]; }

  Value SimplerTranspose(const Node& n, Value x) {
    std::vector<int64_t> perm = n.attrs.Ints("perm");
    if (NodeOf(x).op->name == "transpose") {
      const std::vector<int64_t> inner = NodeOf(x).attrs.Ints("perm");
      for (int64_t& p : perm) p = inner[p];
      x = NodeOf(x).inputs[0];
    } else if (!IsIdentity(perm)) {
      return {};
    }
    return IsIdentity(perm) ? x : Transpose(g(), x, perm);
  }

  static bool IsIdentity(const std::vector<int64_t>& perm) {
    for (size_t i = 0; i < perm.size(); ++i) {
      if (perm[i] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }
  static bool SwapsLastTwo(const std::vector<int64_t>& perm) {
    const size_t r = perm.size();
    if (r < 2) return false;
    for (size_t i = 0; i + 2 < r; ++i) {
      if (perm[i] != static_cast<int64_t>(i)) return false;
    }
    return perm[r - 2] == static_cast<int64_t>(r) - 1 && perm[r - 1] == static_cast<int64_t>(r) - 2;
  }

  Value MatmulOfTranspose(const Node& n, std::vector<Value> in) {
    Attrs attrs = n.attrs;
    bool changed = false;
    for (int k = 0; k < 2; ++k) {
      const Node& x = NodeOf(in[k]);
      if (x.op->name != "transpose" || !SwapsLastTwo(x.attrs.Ints("perm"))) continue;
      const char* name = k == 0 ? "transpose_a" : "transpose_b";
      attrs.Set(name, !attrs.Bool(name));
      in[k] = x.inputs[0];
      changed = true;
    }
    if (!changed) return {};
    Node swapped = n;
    swapped.attrs = std::move(attrs);
    return g().Clone(swapped, in)[0];
  }

  const Graph& graph_;
  Rewriter rewriter_;
};

}  // namespace

Graph Simplify(const Graph& graph) { return Simplifier(graph).Run(); }

}  // namespace mslua
