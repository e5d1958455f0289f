#include "core/sharding/partition.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/graph/gradient_marks.h"
#include "core/op/marks.h"
#include "core/sharding/micro_batches.h"

namespace mslua {
namespace {

class Partitioner {
 public:
  Partitioner(const Graph& graph, const ShardPlan& plan, Resharder& resharder, int64_t rank)
      : graph_(graph), plan_(plan), resharder_(resharder), mesh_(resharder.mesh()), rank_(rank), g_(graph.name) {
    versions_.resize(graph.nodes.size());
    readers_.resize(graph.nodes.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      versions_[i].resize(graph.nodes[i].outputs.size());
      for (Value v : graph.nodes[i].inputs) ++readers_[v.node];
    }
  }

  StatusOr<Graph> Run() {
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i)
      RETURN_IF_ERROR(Annotate(EmitNode(i), NameOf(graph_.nodes[i])));
    for (const GraphOutput& out : graph_.outputs) {
      const int32_t input = out.updates.empty() ? -1 : graph_.FindInput(out.updates);
      const Layout want =
          input < 0 ? Layout(static_cast<int>(graph_.TypeOf(out.value).rank())) : plan_.Output({input, 0});
      g_.SetLocation(graph_.nodes[out.value.node].location);
      const size_t first = g_.graph().nodes.size();
      ASSIGN_OR_RETURN(const Value v, In(out.value, want));
      if (input >= 0 && IsParameter(graph_.nodes[input])) MarkMessages(first, out.updates);
      g_.Output(out.name, v, out.updates);
    }
    return g_.Finish();
  }

 private:
  struct Version {
    Layout layout;
    Value value;
    bool forward = true;  // a forward node wanted it
  };

  Status EmitNode(int32_t i) {
    const Node& n = graph_.nodes[i];
    g_.SetLocation(n.location);
    g_.SetRegion(n.region);
    const AxisList partial = CommonPartial(i);
    std::vector<Layout> in, out;
    std::vector<Value> inputs;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      in.push_back(WithPartial(plan_.Input(i, k), partial));
      ASSIGN_OR_RETURN(const Value v, In(n.inputs[k], in.back(), mark::kOrigin.Has(n.attrs)));
      inputs.push_back(v);
      // The gradient of an update is what has come to where the update is made.
      const Node& maker = graph_.nodes[n.inputs[k].node];
      if (mark::kUpdateGradients.Has(maker.attrs) && !in.back().partial())
        CopyGradientMarks(maker, n.inputs[k].output, &g_.graph().nodes[v.node], v.output);
    }
    for (size_t o = 0; o < n.outputs.size(); ++o)
      out.push_back(WithPartial(plan_.Output({i, static_cast<int32_t>(o)}), partial));
    ASSIGN_OR_RETURN(Attrs attrs, LocalAttrs(n, in, out));
    mark::kUserStrategy.Erase(attrs);
    mark::kOrigin.Erase(attrs);
    mark::kSum.Erase(attrs);
    mark::kMicroSum.Erase(attrs);
    mark::kMicroBatch.Erase(attrs);
    mark::kUpdateGradients.Erase(attrs);
    mark::kGradientOf.Erase(attrs);
    mark::kCrossBatch.Erase(attrs);
    mark::kBoundary.Erase(attrs);
    std::vector<Value> values = g_.OpMulti(n.op->name, inputs, std::move(attrs));
    RETURN_IF_ERROR(g_.status());
    if (mark::kCrossBatch.Has(n.attrs)) values[0] = OfOwnBatch(n, in[0], values[0], &out[0]);
    for (size_t o = 0; o < values.size(); ++o) {
      const TensorType want = Local(n.outputs[o], out[o]);
      if (g_.TypeOf(values[o]) != want)
        return absl::InternalError(
            absl::StrCat("its part is ", ToString(g_.TypeOf(values[o])), ", the rule says ", ToString(want)));
      versions_[i][o].push_back({out[o], values[o]});
    }
    return absl::OkStatus();
  }

  // A reduction's result that stays what this rank's rows give: nothing is added over the axes that shard the batch.
  Value OfOwnBatch(const Node& n, const Layout& in, Value value, Layout* out) {
    double parts = 1;
    for (int8_t a : in.Dim(0)) {
      if (out->UseOf(a) != Layout::Use::kPartial) continue;
      out->Remove(a);
      parts *= static_cast<double>(mesh_.size(a));
    }
    return parts == 1 || mark::kCrossBatch.Get(n.attrs) != "mean" ? value : Mul(g_, value, parts);
  }

  // A sum of gradients (attribute _sum) adds partial values where both are partial over the same axes: one reduction
  // later instead of two before. A cast to a wider float type comes before the reduction, which is then done in that
  // type, unless a parameter's gradient is cast, which is reduced in its own type. So does a view on the way back,
  // after which the value may be a gradient that travels with others.
  AxisList CommonPartial(int32_t i) const {
    const Node& n = graph_.nodes[i];
    const bool widens = n.op->name == "cast" && !mark::kGradientOf.Has(graph_.nodes[n.inputs[0].node].attrs) &&
                        IsFloat(graph_.TypeOf(n.inputs[0]).dtype) && IsFloat(n.outputs[0].dtype) &&
                        SizeOf(graph_.TypeOf(n.inputs[0]).dtype) < SizeOf(n.outputs[0].dtype);
    const bool view = n.op->view && mark::kOrigin.Has(n.attrs) && readers_[n.inputs[0].node] == 1;
    if (!mark::kSum.Has(n.attrs) && !widens && !view) return {};
    AxisList common;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const auto& versions = versions_[n.inputs[k].node][n.inputs[k].output];
      const Layout made = versions.front().layout;
      const AxisList partial = made.Partial();
      if (partial.empty() || made.reduction() != Reduction::kSum || (k > 0 && partial != common)) return {};
      common = partial;
    }
    for (int8_t a : common) {
      if (plan_.Input(i, 0).UseOf(a) != Layout::Use::kReplicated) return {};
    }
    return common;
  }
  static Layout WithPartial(Layout layout, const AxisList& partial) {
    for (int8_t a : partial) layout.SetPartial(a, Reduction::kSum);
    return layout;
  }

  // The value in that layout: an earlier copy, or the cheapest way from one. On the way back parameters that were
  // gathered on the way forward are gathered again, so that nobody keeps them whole in between.
  StatusOr<Value> In(Value v, const Layout& want, bool backward = false) {
    const Node& maker = graph_.nodes[v.node];
    const bool parameter = IsParameter(maker);
    std::vector<Version>& versions = versions_[v.node][v.output];
    const TensorType& type = graph_.TypeOf(v);
    const ReshardPlan* best = nullptr;
    Value from;
    for (const Version& version : versions) {
      const bool stale = parameter && backward && version.forward && &version != &versions.front();
      if (stale) continue;
      if (version.layout == want) return version.value;
      if (want.partial() && !version.layout.partial()) continue;
      ASSIGN_OR_RETURN(const ReshardPlan* plan, resharder_.Plan(version.layout, want, type));
      if (best != nullptr && plan->seconds >= best->seconds) continue;
      best = plan;
      from = version.value;
    }
    if (best == nullptr) return absl::InternalError("a value has no layout");
    const size_t first = g_.graph().nodes.size();
    const Value made = EmitReshard(g_, mesh_, rank_, *best, from, type);
    RETURN_IF_ERROR(g_.status());
    if (mark::kGradientOf.Has(maker.attrs)) MarkMessages(first, mark::kGradientOf.Get(maker.attrs));
    versions.push_back({want, made, !backward});
    return made;
  }

  static bool IsParameter(const Node& n) { return n.op->name == "input" && n.attrs.Str("kind") == kParameter; }

  // Says of the messages from node `first` on which parameter they are for.
  void MarkMessages(size_t first, const std::string& parameter) {
    for (size_t i = first; i < g_.graph().nodes.size(); ++i) {
      Node& n = g_.graph().nodes[i];
      if (n.op->name == "all_reduce" || n.op->name == "reduce_scatter" || n.op->name == "all_gather")
        mark::kGradientOf.Set(n.attrs, parameter);
    }
  }

  TensorType Local(const TensorType& type, const Layout& layout) const {
    return {type.dtype, layout.Local(mesh_, type.shape)};
  }

  StatusOr<Attrs> LocalAttrs(const Node& n, const std::vector<Layout>& in, const std::vector<Layout>& out) const {
    if (!n.op->localize) return n.attrs;
    std::vector<TensorType> inputs, local_inputs, local_outputs;
    std::vector<Shape> input_begin, output_begin;
    for (size_t k = 0; k < in.size(); ++k) {
      inputs.push_back(graph_.TypeOf(n.inputs[k]));
      local_inputs.push_back(Local(inputs[k], in[k]));
      input_begin.push_back(in[k].Begin(mesh_, inputs[k].shape, rank_));
    }
    for (size_t o = 0; o < out.size(); ++o) {
      local_outputs.push_back(Local(n.outputs[o], out[o]));
      output_begin.push_back(out[o].Begin(mesh_, n.outputs[o].shape, rank_));
    }
    // Nothing is sharded: nothing changes.
    if (local_inputs == inputs && std::equal(local_outputs.begin(), local_outputs.end(), n.outputs.begin()))
      return n.attrs;
    return n.op->localize({n.attrs, inputs, n.outputs, local_inputs, local_outputs, input_begin, output_begin});
  }

  const Graph& graph_;
  const ShardPlan& plan_;
  Resharder& resharder_;
  const Mesh& mesh_;
  const int64_t rank_;
  GraphBuilder g_;
  std::vector<int> readers_;                                 // by node
  std::vector<std::vector<std::vector<Version>>> versions_;  // by node and output; the first is as it was made
};

}  // namespace

StatusOr<Graph> Partition(const Graph& graph, const ShardPlan& plan, Resharder& resharder, int64_t rank) {
  return Partitioner(graph, plan, resharder, rank).Run();
}

}  // namespace mslua
