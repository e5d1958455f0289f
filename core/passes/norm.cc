// Batch normalisations over channels-last images, with what follows them.
//
// The map (x - mean) * rstd * scale + bias becomes elementwise operators where others follow it: with the relu, the
// residual sum and the cast after it, it is one pass over memory. Where a convolution follows its own kernel stays.
//
// The gradient through a relu finds out again where the relu's operand was positive, from x, which it reads anyway: two
// passes over memory instead of three, and no mask that is kept for it.
#include <algorithm>
#include <optional>
#include <vector>

#include "core/op/registry.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

class NormPass {
 public:
  explicit NormPass(const Graph& graph)
      : graph_(graph),
        rewriter_(graph),
        readers_(graph.nodes.size(), 0),
        others_(graph.nodes.size(), 0),
        gradients_(graph.nodes.size(), 0) {
    for (const Node& n : graph.nodes) {
      if (n.op->name == "batch_norm_grad_stats" || n.op->name == "batch_norm_grad_apply")
        ++gradients_[n.inputs[0].node];
      for (Value v : n.inputs) ++(n.op->formula.empty() ? others_ : readers_)[v.node];
    }
    for (const GraphOutput& o : graph.outputs) ++others_[o.value.node];
  }

  Graph Run() {
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      const Node& n = graph_.nodes[i];
      const bool map = n.op->name == "batch_norm_apply" && n.attrs.Str("data_format") == "NHWC";
      if (map && readers_[i] > 0 && others_[i] == 0)
        rewriter_.Replace({i, 0}, Map(n, rewriter_.MapInputs(n)));
      else if (!ThroughRelu(i))
        rewriter_.Copy(i);
    }
    return rewriter_.Finish();
  }

 private:
  const Node& NodeOf(Value v) const { return graph_.nodes[v.node]; }

  bool IsZero(Value v) const {
    while (NodeOf(v).op->name == "broadcast_to") v = NodeOf(v).inputs[0];
    const Node& n = NodeOf(v);
    return n.op->name == "constant" && n.outputs[0].elements() == 1 &&
           LoadAsDouble(n.outputs[0].dtype, n.attrs.Str("data").data(), 0) == 0;
  }

  // Whether node `i` takes a normalisation's gradient through a relu; then it is replaced.
  bool ThroughRelu(int32_t i) {
    const Node& n = graph_.nodes[i];
    const bool stats = n.op->name == "batch_norm_grad_stats";
    if ((!stats && n.op->name != "batch_norm_grad_apply") || n.attrs.Str("data_format") != "NHWC") return false;
    const std::optional<Masked> masked = MaskedGradient(n);
    if (!masked) return false;
    Node through = n;
    through.op = Operators().Find(stats ? "batch_norm_relu_grad_stats" : "batch_norm_relu_grad_apply");
    std::vector<Value> in = rewriter_.MapInputs(n);
    in[0] = rewriter_.Map(masked->dy);
    if (stats) in.push_back(rewriter_.Map(NodeOf(masked->normal).inputs[3]));
    in.insert(in.begin() + 5, rewriter_.Map(NodeOf(masked->normal).inputs[4]));
    const std::vector<Value> out = rewriter_.to().Clone(through, in);
    for (int32_t o = 0; o < static_cast<int32_t>(out.size()); ++o) rewriter_.Replace({i, o}, out[o]);
    return true;
  }

  // The gradient of a normalisation's relu.
  struct Masked {
    Value dy;      // the relu's result's
    Value normal;  // the batch_norm_apply before it
  };
  // dy of the gradient `n`, when it is select(relu(batch_norm_apply(x, ..)) <= 0, 0, dy) and such gradients alone read
  // it.
  std::optional<Masked> MaskedGradient(const Node& n) const {
    const Value dy = n.inputs[0];
    const Node& select = NodeOf(dy);
    if (select.op->name != "select" || !IsZero(select.inputs[1]) || readers_[dy.node] > 0) return std::nullopt;
    const Node& mask = NodeOf(select.inputs[0]);
    if (mask.op->name != "less_equal" || !IsZero(mask.inputs[1])) return std::nullopt;
    const Node& relu = NodeOf(mask.inputs[0]);
    if (relu.op->name != "relu") return std::nullopt;
    const Masked masked{select.inputs[2], relu.inputs[0]};
    const Node& normal = NodeOf(masked.normal);
    if (normal.op->name != "batch_norm_apply" || others_[dy.node] != gradients_[dy.node]) return std::nullopt;
    const bool same = std::equal(n.inputs.begin() + 1, n.inputs.begin() + 4, normal.inputs.begin());
    return same ? std::make_optional(masked) : std::nullopt;
  }

  Value Map(const Node& n, const std::vector<Value>& in) {
    GraphBuilder& g = rewriter_.to();
    g.SetLocation(n.location);
    g.SetRegion(n.region);
    const DType computed = g.TypeOf(in[1]).dtype, stored = g.TypeOf(in[0]).dtype;
    const Value slope = Mul(g, in[2], in[3]);
    const Value y = Add(g, Mul(g, Sub(g, Cast(g, in[0], computed), in[1]), slope), in[4]);
    const Value result = Cast(g, y, stored);
    g.SetRegion(0);
    g.SetLocation(nullptr);
    return result;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<int32_t> readers_, others_;  // of a node: elementwise operators, and everything else
  std::vector<int32_t> gradients_;         // of these: normalisations' gradients whose dy it is
};

}  // namespace

Graph MapNorms(const Graph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& n) { return n.op->name == "batch_norm_apply"; });
  return any ? NormPass(graph).Run() : graph;
}

}  // namespace mslua
