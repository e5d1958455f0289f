// Attention over a projection [n, t, 3 * heads * d] that is split into queries, keys and values, each of which is moved
// to [n, heads, t, d]: one packed_attention reads the heads where they lie, and its gradient writes them there. What is
// left around it (transposes of transposes, a concatenation of a split) Simplify removes.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

const std::vector<int64_t> kHeadsFirst = {0, 2, 1, 3};

class Packer {
 public:
  explicit Packer(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const int32_t node = static_cast<int32_t>(i);
      if (!VisitForward(node) && !VisitBackward(node)) rewriter_.Copy(node);
    }
    return rewriter_.Finish();
  }

 private:
  struct Packed {
    Value qkv, y, lse;  // of the new graph
  };
  GraphBuilder& g() { return rewriter_.to(); }

  const Node& NodeOf(Value v) const { return graph_.nodes[v.node]; }

  // The [n, t, part] that v [n, heads, t, d] is moved from.
  std::optional<Value> BeforeMove(Value v) const {
    const Node& transpose = NodeOf(v);
    if (transpose.op->name != "transpose" || transpose.attrs.Ints("perm") != kHeadsFirst) return std::nullopt;
    const Node& reshape = NodeOf(transpose.inputs[0]);
    if (reshape.op->name != "reshape") return std::nullopt;
    const Shape &from = graph_.TypeOf(reshape.inputs[0]).shape, &to = reshape.outputs[0].shape;
    if (from.size() != 3 || from[0] != to[0] || from[1] != to[1]) return std::nullopt;
    return reshape.inputs[0];
  }

  // The projection whose thirds q, k and v are.
  std::optional<Value> Projection(const Node& attention) const {
    Value split;
    for (int i = 0; i < 3; ++i) {
      const std::optional<Value> part = BeforeMove(attention.inputs[i]);
      if (!part || part->output != i || (i > 0 && part->node != split.node)) return std::nullopt;
      split = *part;
    }
    const Node& n = NodeOf(split);
    if (n.op->name != "split" || n.attrs.Int("axis") != 2 || n.outputs.size() != 3) return std::nullopt;
    return n.inputs[0];
  }

  Attrs PackedAttrs(const Node& n) const {
    return {{"heads", graph_.TypeOf(n.inputs[0]).shape[1]},
            {"causal", n.attrs.Bool("causal")},
            {"scale", n.attrs.Float("scale")}};
  }

  std::vector<Value> Emit(const Node& n, const char* op, const std::vector<Value>& inputs) {
    g().SetLocation(n.location);
    g().SetRegion(n.region);
    auto out = g().OpMulti(op, inputs, PackedAttrs(n));
    g().SetRegion(0);
    g().SetLocation(nullptr);
    return out;
  }

  // [n, t, heads * d] to [n, heads, t, d], and back.
  Value Apart(Value x, const Shape& like) {
    return Transpose(g(), Reshape(g(), x, {like[0], like[2], like[1], like[3]}), kHeadsFirst);
  }
  Value Together(Value x) {
    const Shape s = g().TypeOf(x).shape;
    return Reshape(g(), Transpose(g(), x, kHeadsFirst), {s[0], s[2], s[1] * s[3]});
  }

  bool VisitForward(int32_t i) {
    const Node& n = graph_.nodes[i];
    if (n.op->name != "scaled_dot_product_attention") return false;
    const std::optional<Value> qkv = Projection(n);
    if (!qkv) return false;
    const Value mapped = rewriter_.Map(*qkv);
    const std::vector<Value> out = Emit(n, "packed_attention", {mapped});
    rewriter_.Replace({i, 0}, Apart(out[0], n.outputs[0].shape));
    rewriter_.Replace({i, 1}, out[1]);
    packed_[i] = {mapped, out[0], out[1]};
    return true;
  }

  // Whether `delta` is the sum over the last dimension of dy * y, and nothing else.
  bool IsRowSum(Value delta, Value dy, Value y) const {
    const Node& sum = NodeOf(delta);
    const std::vector<int64_t> last = {3};
    if (sum.op->name != "reduce_sum" || sum.attrs.Ints("axis") != last || sum.attrs.Bool("keep_dims")) return false;
    const Node& product = NodeOf(sum.inputs[0]);
    const auto through_cast = [&](Value v) { return NodeOf(v).op->name == "cast" ? NodeOf(v).inputs[0] : v; };
    if (product.op->name != "mul") return false;
    const Value a = through_cast(product.inputs[0]), b = through_cast(product.inputs[1]);
    return (a == dy && b == y) || (a == y && b == dy);
  }

  bool VisitBackward(int32_t i) {
    const Node& n = graph_.nodes[i];
    if (n.op->name != "scaled_dot_product_attention_grad") return false;
    const Value lse = n.inputs[3], dy = n.inputs[5];
    const auto forward = packed_.find(lse.node);
    if (forward == packed_.end() || lse.output != 1 || !IsRowSum(n.inputs[4], dy, {lse.node, 0})) return false;
    const Node& attention = graph_.nodes[lse.node];
    if (!std::equal(attention.inputs.begin(), attention.inputs.end(), n.inputs.begin())) return false;
    const Packed& p = forward->second;
    const Value dqkv = Emit(n, "packed_attention_grad", {p.qkv, p.y, p.lse, Together(rewriter_.Map(dy))})[0];
    const std::vector<Value> parts = g().OpMulti("split", {dqkv}, {{"axis", int64_t{2}}, {"output_num", int64_t{3}}});
    for (int32_t o = 0; o < 3; ++o) rewriter_.Replace({i, o}, Apart(parts[o], n.outputs[o].shape));
    return true;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::map<int32_t, Packed> packed_;  // by the attention of the old graph
};

}  // namespace

Graph PackAttention(const Graph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& n) { return n.op->name == "scaled_dot_product_attention"; });
  return any ? EliminateDeadNodes(Packer(graph).Run()) : graph;
}

}  // namespace mslua
