// mslua graph
#include <dirent.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/common_flags.h"
#include "core/json/json_string.h"
#include "core/passes/run_passes.h"
#include "lua/graph_lua.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

DEFINE_string(format, "text", "how to print it");
DEFINE_string(pass, "", "the graph after this pass, instead of the final one");

namespace mslua {
namespace {

// One object a node, one a line: {"id", "op", "inputs": [[node, output]], "types", "attrs", "location"}.
std::string Json(const Graph& graph) {
  std::string out;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    absl::StrAppend(
        &out, "{\"id\": ", i, ", \"op\": ", JsonString(n.op->name), ", \"inputs\": [",
        absl::StrJoin(n.inputs, ", ",
                      [](std::string* o, Value v) { absl::StrAppend(o, "[", v.node, ", ", v.output, "]"); }),
        "], \"types\": [",
        absl::StrJoin(n.outputs, ", ", [](std::string* o, const TensorType& t) { o->append(JsonString(ToString(t))); }),
        "], \"attrs\": {",
        absl::StrJoin(n.attrs.items(), ", ",
                      [](std::string* o, const auto& a) {
                        absl::StrAppend(o, JsonString(a.first), ": ", JsonString(AttrText(a.second)));
                      }),
        "}");
    if (n.location) absl::StrAppend(&out, ", \"location\": ", JsonString(ToString(*n.location)));
    absl::StrAppend(&out, "}\n");
  }
  for (const GraphOutput& o : graph.outputs) {
    absl::StrAppend(&out, "{\"output\": ", JsonString(o.name), ", \"value\": [", o.value.node, ", ", o.value.output,
                    "]", o.updates.empty() ? "" : absl::StrCat(", \"updates\": ", JsonString(o.updates)), "}\n");
  }
  return out;
}

StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

// The graph after pass `pass`, by compiling with the dumps of all passes in a folder of its own.
StatusOr<Graph> AfterPass(const Graph& graph, const std::string& pass) {
  char folder[] = "/tmp/mslua-graph-XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::InternalError("cannot make a temporary folder");
  CompileOptions options;
  options.save_graphs = 2;
  options.save_graphs_path = folder;
  const auto compiled = RunPasses(graph, options);
  const std::string dumps = absl::StrCat(folder, "/rank_0");
  std::set<std::string> files, names;  // "03_common.ir": sorted, a later run of a pass comes last
  if (DIR* d = opendir(dumps.c_str())) {
    while (const dirent* e = readdir(d)) {
      if (e->d_name[0] != '.') files.insert(e->d_name);
    }
    closedir(d);
  }
  StatusOr<std::string> text = absl::NotFoundError("");
  for (const std::string& file : files) {
    const size_t from = file.rfind('_') + 1;
    const std::string name = file.substr(from, file.rfind('.') - from);
    names.insert(name);
    if (name == pass) text = ReadText(absl::StrCat(dumps, "/", file));
  }
  for (const std::string& file : files) unlink(absl::StrCat(dumps, "/", file).c_str());
  rmdir(dumps.c_str());
  rmdir(folder);
  RETURN_IF_ERROR(compiled.status());
  if (names.count(pass) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no pass '", pass, "'; there are ", absl::StrJoin(names, ", ")));
  }
  RETURN_IF_ERROR(text.status());
  return ParseGraph(*text);
}

StatusOr<Graph> GraphOf(const cli::CommandLine& command, const std::string& file) {
  if (absl::EndsWith(file, ".ir")) {
    if (command.Given("preset") || command.Given("n") || command.Given("rank") || !command.overrides.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("graph: ", file, " is a graph already: -n, --rank, --preset and key=value are for recipes"));
    }
    if (command.Given("pass")) {
      return absl::InvalidArgumentError(absl::StrCat("graph: --pass is for recipes; ", file, " is printed as it is"));
    }
    ASSIGN_OR_RETURN(const std::string text, ReadText(file));
    auto graph = ParseGraph(text);
    if (!graph.ok()) return Annotate(graph.status(), file);
    return graph;
  }
  RETURN_IF_ERROR(CheckRecipe(file));
  SessionOptions options = OptionsOf(command);
  options.ranks = static_cast<int>(command.Int("n"));
  options.rank = static_cast<int>(command.Int("rank"));
  if (options.rank >= options.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank ", options.rank, ": ", options.ranks, " rank(s) are 0 to ", options.ranks - 1, " (-n N)"));
  }
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  RETURN_IF_ERROR(session->RunText("return require('mslua.verbs').graph()", "=mslua/verb"));
  const auto* traced = ToObject<std::shared_ptr<TracedGraph>>(session->lua(), -1);
  if (traced == nullptr) return absl::InternalError("mslua.verbs.graph() gave no graph");
  if (command.Given("pass")) return AfterPass((*traced)->graph, command.String("pass"));
  return RunPasses((*traced)->graph, {});
}

int RunGraph(const cli::CommandLine& command) {
  const auto graph = GraphOf(command, command.positional[0]);
  if (!graph.ok()) return Report(graph.status());
  const std::string format = command.String("format");
  const std::string text = format == "dot" ? ToDot(*graph) : format == "json" ? Json(*graph) : ToString(*graph);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(graph) {
  VerbDef verb;
  verb.name = "graph";
  verb.usage = "RECIPE|FILE.ir [key=value ...] [flags]";
  verb.doc = "the compiled graph of a recipe's step";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {OneOf(FLAGS_format, "text|dot|json"), Preset(), Text(FLAGS_pass, "NAME"), RanksWithoutThem(),
                Rank().Help("print the program of rank R")};
  verb.examples = {"mslua graph recipes/quickstart.lua --format dot",
                   "mslua graph recipes/quickstart.lua -n 8 --rank 3", "mslua graph rank_0/01_traced.ir"};
  verb.place = 510;
  verb.run = RunGraph;
  return verb;
}

}  // namespace mslua::cli
