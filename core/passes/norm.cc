// The map of a batch normalisation over channels-last images, (x - mean) * rstd * scale + bias, as elementwise
// operators where others follow it: with the relu, the residual sum and the cast after it, it becomes one pass over
// memory. Where a convolution follows its own kernel stays.
#include <algorithm>
#include <vector>

#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {
namespace {

class NormPass {
 public:
  explicit NormPass(const Graph& graph)
      : graph_(graph), rewriter_(graph), readers_(graph.nodes.size(), 0), others_(graph.nodes.size(), 0) {
    for (const Node& n : graph.nodes) {
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
      else
        rewriter_.Copy(i);
    }
    return rewriter_.Finish();
  }

 private:
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
};

}  // namespace

Graph MapNorms(const Graph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& n) { return n.op->name == "batch_norm_apply"; });
  return any ? NormPass(graph).Run() : graph;
}

}  // namespace mslua
