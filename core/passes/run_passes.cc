#include "core/passes/run_passes.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/passes/buckets.h"
#include "core/passes/decisions.h"
#include "core/passes/passes.h"

namespace mslua {

namespace {

struct Pass {
  const char* name;
  Graph (*run)(const Graph&, Decisions*);
};
// A pass that leaves nothing to be decided.
template <Graph (*pass)(const Graph&)>
Graph Plain(const Graph& graph, Decisions*) {
  return pass(graph);
}
Graph Recompute(const Graph& graph, Decisions*) { return RecomputeElementwise(graph); }
// Simplifying lays bare common nodes, and the other way round; two rounds find nearly all.
constexpr Pass kPasses[] = {
    {"number", Plain<NumberCollectives>},  // as all ranks have them
    {"dead", Plain<EliminateDeadNodes>},
    {"regions", Plain<RecomputeRegions>},
    {"simplify", Plain<Simplify>},
    {"common", Plain<MergeCommonNodes>},
    {"simplify", Plain<Simplify>},
    {"common", Plain<MergeCommonNodes>},
    {"rows", Plain<UpdateByRows>},
    {"layout", Plain<AssignLayout>},
    {"norm", Plain<MapNorms>},
    {"pointwise", PointwiseConvolutions},
    {"attention", Plain<PackAttention>},
    {"flatten", Plain<FlattenElementwise>},
    {"simplify", Plain<Simplify>},
    {"common", Plain<MergeCommonNodes>},
    {"simplify", Plain<Simplify>},
    {"dead", Plain<EliminateDeadNodes>},
    {"recompute", Recompute},
};
constexpr Pass kFusion[] = {{"fuse", Plain<FuseElementwise>}, {"buckets", Plain<BucketCollectives>}};
constexpr Pass kFusionForDevice[] = {{"fuse", Plain<FuseForDevice>},
                                     {"epilogues", Plain<FuseEpilogues>},
                                     {"fuse_rows", Plain<FuseRows>},
                                     {"buckets", Plain<BucketCollectives>}};

// The folder of a graph's dumps: "<path>/rank_0", of the graph "Net.eval" "<path>/rank_0/eval".
std::string DumpFolder(const Graph& graph, const PassOptions& options) {
  const size_t dot = graph.name.find('.');
  return absl::StrCat(options.save_graphs_path, "/rank_", options.rank, dot == graph.name.npos ? "" : "/",
                      dot == graph.name.npos ? "" : graph.name.substr(dot + 1));
}

class GraphSaver {
 public:
  explicit GraphSaver(const PassOptions& options) : options_(options) {}

  Status Save(const Graph& graph, const char* pass, bool final) {
    ++number_;
    if (options_.save_graphs == 0 || (options_.save_graphs == 1 && !final)) return absl::OkStatus();
    const std::string folder = DumpFolder(graph, options_);
    RETURN_IF_ERROR(MakeFolders(folder));
    const std::string stem = absl::StrFormat("%s/%02d_%s", folder, number_, pass);
    RETURN_IF_ERROR(WriteFileAtomically(stem + ".ir", ToString(graph)));
    return options_.save_graphs >= 3 ? WriteFileAtomically(stem + ".dot", ToDot(graph)) : absl::OkStatus();
  }

 private:
  const PassOptions& options_;
  int number_ = 0;  // 0 is SaveGraph's
};

StatusOr<Graph> Run(const Graph& graph, const PassOptions& options, absl::Span<const Pass> fusion) {
  RETURN_IF_ERROR(Verify(graph));
  GraphSaver saver(options);
  const bool optimize = options.optimize && !options.reference_kernels;
  RETURN_IF_ERROR(saver.Save(graph, "traced", !optimize));
  if (!optimize) return EliminateDeadNodes(graph);
  Graph current = graph;
  Decisions usual;
  static const bool verify_each = std::getenv("MSLUA_VERIFY_PASSES") != nullptr;
  std::vector<Pass> passes(std::begin(kPasses), std::end(kPasses));
  passes.insert(passes.end(), fusion.begin(), fusion.end());
  for (const Pass& pass : passes) {
    current = pass.run(current, options.decisions != nullptr ? options.decisions : &usual);
    if (verify_each) RETURN_IF_ERROR(Annotate(Verify(current), absl::StrCat("after the pass ", pass.name)));
    RETURN_IF_ERROR(saver.Save(current, pass.name, &pass == &passes.back()));
  }
  RETURN_IF_ERROR(Verify(current));
  return current;
}

}  // namespace

StatusOr<Graph> RunPasses(const Graph& graph, const PassOptions& options) { return Run(graph, options, kFusion); }
StatusOr<Graph> RunPassesForDevice(const Graph& graph, const PassOptions& options) {
  return Run(graph, options, kFusionForDevice);
}

Status SaveGraph(const Graph& graph, const std::string& stage, const PassOptions& options) {
  if (options.save_graphs < 2) return absl::OkStatus();
  const std::string folder = DumpFolder(graph, options);
  RETURN_IF_ERROR(MakeFolders(folder));
  return WriteFileAtomically(absl::StrCat(folder, "/00_", stage, ".ir"), ToString(graph));
}

std::string ToDot(const Graph& graph) {
  std::string out = absl::StrCat("digraph \"", absl::CEscape(graph.name), "\" {\n  node [shape=box, fontsize=10];\n");
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    const std::string label = n.op->name == "input" ? n.attrs.Str("name") : n.op->name;
    absl::StrAppend(&out, "  n", i, " [label=\"", absl::CEscape(label), "\\n", ToString(n.outputs[0]), "\"];\n");
    for (Value v : n.inputs) absl::StrAppend(&out, "  n", v.node, " -> n", i, ";\n");
  }
  return out + "}\n";
}

}  // namespace mslua
