#include "core/graph/testing/evaluate.h"

#include "absl/strings/str_cat.h"

namespace mslua {

StatusOr<std::vector<std::string>> EvaluateReference(const Graph& graph, const std::vector<std::string>& inputs) {
  std::vector<std::vector<std::string>> values(graph.nodes.size());
  size_t next_input = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    std::vector<TensorView> in, out;
    for (Value v : n.inputs) in.push_back({graph.TypeOf(v), values[v.node][v.output].data()});
    for (const TensorType& t : n.outputs) values[i].emplace_back(static_cast<size_t>(t.bytes()), '\0');
    if (n.op->name == "input") {
      if (next_input >= inputs.size() || inputs[next_input].size() != values[i][0].size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("input '", n.attrs.Str("name"), "' is missing or has another size"));
      }
      values[i][0] = inputs[next_input++];
      continue;
    }
    for (size_t o = 0; o < n.outputs.size(); ++o) out.push_back({n.outputs[o], &values[i][o][0]});
    if (n.op->view) {
      values[i][0] = values[n.inputs[0].node][n.inputs[0].output];
      continue;
    }
    if (!n.op->reference) return absl::InternalError(absl::StrCat(n.op->name, ": no reference kernel"));
    RETURN_IF_ERROR(Annotate(n.op->reference({n.attrs, in, out}),
                             n.location ? absl::StrCat(ToString(*n.location), ": ", n.op->name) : n.op->name));
  }
  std::vector<std::string> results;
  for (const GraphOutput& o : graph.outputs) results.push_back(values[o.value.node][o.value.output]);
  return results;
}

}  // namespace mslua
