#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/graph/gradient_marks.h"
#include "core/op/marks.h"
#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {

Graph MergeCommonNodes(const Graph& graph) {
  Rewriter rewriter(graph);
  absl::flat_hash_map<std::string, int32_t> seen;  // what a node computes -> the first that does
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    if (!n.op->side_effect) {
      std::string key = absl::StrCat(n.op->name, "|", n.region);
      for (Value v : n.inputs) {
        const Value now = rewriter.Map(v);
        absl::StrAppend(&key, "|", now.node, ":", now.output);
      }
      for (const auto& a : n.attrs.items()) {
        if (a.first != mark::kUpdateGradients.name) absl::StrAppend(&key, "|", a.first, "=", AttrText(a.second));
      }
      const auto [it, fresh] = seen.emplace(std::move(key), static_cast<int32_t>(i));
      if (!fresh) {
        for (size_t o = 0; o < n.outputs.size(); ++o) {
          const int32_t out = static_cast<int32_t>(o);
          rewriter.Replace({static_cast<int32_t>(i), out}, rewriter.Map({it->second, out}));
        }
        continue;
      }
    }
    rewriter.Copy(static_cast<int32_t>(i));
  }
  return rewriter.Finish();
}

}  // namespace mslua
