#include "core/graph/graph.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/rng.h"

namespace mslua {

std::string ToString(const Location& l) {
  std::vector<std::string> parts;
  if (!l.scope.empty()) parts.push_back(l.scope);
  if (!l.instance.empty()) parts.push_back(absl::StrCat("{instance name: ", l.instance, "}"));
  if (!l.file.empty()) parts.push_back(absl::StrCat("@ ", l.file, ":", l.line));
  return absl::StrJoin(parts, " ");
}

std::vector<int32_t> Graph::Inputs() const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op->name == "input") out.push_back(static_cast<int32_t>(i));
  }
  return out;
}

int32_t Graph::FindInput(absl::string_view name) const {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].op->name == "input" && nodes[i].attrs.Str("name") == name) return static_cast<int32_t>(i);
  }
  return -1;
}

std::vector<std::vector<int32_t>> Graph::UseCounts() const {
  std::vector<std::vector<int32_t>> uses(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) uses[i].resize(nodes[i].outputs.size());
  for (const Node& n : nodes) {
    for (Value v : n.inputs) ++uses[v.node][v.output];
  }
  for (const GraphOutput& o : outputs) ++uses[o.value.node][o.value.output];
  return uses;
}

Status Verify(const Graph& graph) {
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    const auto bad = [&](absl::string_view what) {
      return absl::InternalError(absl::StrCat("graph '", graph.name, "', %", i, " ", n.op ? n.op->name : "?", ": ",
                                              what, n.location ? absl::StrCat(" (", ToString(*n.location), ")") : ""));
    };
    if (n.op == nullptr) return bad("no operator");
    std::vector<TensorType> types;
    for (Value v : n.inputs) {
      if (v.node < 0 || v.node >= static_cast<int32_t>(i)) return bad("uses a value that is not defined before it");
      if (v.output < 0 || v.output >= static_cast<int32_t>(graph.nodes[v.node].outputs.size()))
        return bad("uses an output that does not exist");
      types.push_back(graph.TypeOf(v));
    }
    Attrs attrs = n.attrs;
    const auto inferred = CheckCall(*n.op, types, attrs);
    if (!inferred.ok()) return bad(inferred.status().message());
    if (!(attrs == n.attrs)) return bad("attributes are not in normal form");
    if (inferred->size() != n.outputs.size()) return bad("has another number of outputs than its operator infers");
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      if ((*inferred)[o] != n.outputs[o]) {
        return bad(absl::StrCat("output ", o, " is ", ToString(n.outputs[o]), ", the operator infers ",
                                ToString((*inferred)[o])));
      }
    }
    if (n.op->name == "input" && !names.insert(n.attrs.Str("name")).second)
      return bad(absl::StrCat("a second input '", n.attrs.Str("name"),
                              "': columns of the dataset, parameters and numbers such as \"lr\" need different names: "
                              "rename the column"));
  }
  for (const GraphOutput& o : graph.outputs) {
    const auto bad = [&](absl::string_view what) {
      return absl::InternalError(absl::StrCat("graph '", graph.name, "', output '", o.name, "': ", what));
    };
    if (o.value.node < 0 || o.value.node >= static_cast<int32_t>(graph.nodes.size()) || o.value.output < 0 ||
        o.value.output >= static_cast<int32_t>(graph.nodes[o.value.node].outputs.size())) {
      return bad("is not a value of the graph");
    }
    if (o.updates.empty()) continue;
    const int32_t input = graph.FindInput(o.updates);
    if (input < 0) return bad(absl::StrCat("updates '", o.updates, "', which is not an input"));
    if (graph.nodes[input].outputs[0] != graph.TypeOf(o.value))
      return bad(absl::StrCat("and the input '", o.updates, "' have different types"));
  }
  return absl::OkStatus();
}

uint64_t Fingerprint(const Graph& graph) {
  Graph bare = graph;
  for (Node& n : bare.nodes) n.location.reset();
  return StreamOf(ToString(bare));
}

}  // namespace mslua
