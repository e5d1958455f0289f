#include "core/runtime/compile.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/passes/buckets.h"
#include "core/passes/passes.h"

namespace mslua {

namespace {

struct Pass {
  const char* name;
  Graph (*run)(const Graph&);
};
// Simplifying lays bare common nodes, and the other way round; two rounds find nearly all.
constexpr Pass kPasses[] = {
    {"dead", EliminateDeadNodes},         {"simplify", Simplify},
    {"common", MergeCommonNodes},         {"simplify", Simplify},
    {"common", MergeCommonNodes},         {"layout", AssignLayout},
    {"pointwise", PointwiseConvolutions}, {"attention", PackAttention},
    {"flatten", FlattenElementwise},      {"simplify", Simplify},
    {"common", MergeCommonNodes},         {"simplify", Simplify},
    {"dead", EliminateDeadNodes},         {"fuse", FuseElementwise},
    {"buckets", BucketCollectives},
};

Status WriteText(const std::string& path, const std::string& text) {
  std::FILE* f = std::fopen(path.c_str(), "w");
  if (f == nullptr) return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  const bool ok = std::fwrite(text.data(), 1, text.size(), f) == text.size();
  if (std::fclose(f) != 0 || !ok)
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

// mkdir -p
Status MakeFolder(const std::string& path) {
  for (size_t i = 1; i <= path.size(); ++i) {
    if (i < path.size() && path[i] != '/') continue;
    if (mkdir(path.substr(0, i).c_str(), 0777) != 0 && errno != EEXIST) {
      return absl::UnavailableError(
          absl::StrCat("cannot make the folder ", path.substr(0, i), ": ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

class GraphSaver {
 public:
  explicit GraphSaver(const CompileOptions& options)
      : options_(options), folder_(absl::StrCat(options.save_graphs_path, "/rank_", options.rank)) {}

  Status Save(const Graph& graph, const char* pass, bool final) {
    if (options_.save_graphs == 0 || (options_.save_graphs == 1 && !final)) return absl::OkStatus();
    RETURN_IF_ERROR(MakeFolder(folder_));
    const std::string stem = absl::StrFormat("%s/%s_%02d_%s", folder_, graph.name, number_++, pass);
    RETURN_IF_ERROR(WriteText(stem + ".ir", ToString(graph)));
    return options_.save_graphs >= 3 ? WriteText(stem + ".dot", ToDot(graph)) : absl::OkStatus();
  }

 private:
  const CompileOptions& options_;
  const std::string folder_;
  int number_ = 0;
};

}  // namespace

StatusOr<Graph> RunPasses(const Graph& graph, const CompileOptions& options) {
  RETURN_IF_ERROR(Verify(graph));
  GraphSaver saver(options);
  const bool optimize = options.optimize && !options.reference_kernels;
  RETURN_IF_ERROR(saver.Save(graph, "traced", !optimize));
  if (!optimize) return EliminateDeadNodes(graph);
  Graph current = graph;
  for (const Pass& pass : kPasses) {
    current = pass.run(current);
    RETURN_IF_ERROR(saver.Save(current, pass.name, &pass == std::end(kPasses) - 1));
  }
  RETURN_IF_ERROR(Verify(current));
  return current;
}

Status SaveGraph(const Graph& graph, const std::string& stage, const CompileOptions& options) {
  if (options.save_graphs < 2) return absl::OkStatus();
  const std::string folder = absl::StrCat(options.save_graphs_path, "/rank_", options.rank);
  RETURN_IF_ERROR(MakeFolder(folder));
  return WriteText(absl::StrCat(folder, "/", graph.name, "_", stage, ".ir"), ToString(graph));
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
