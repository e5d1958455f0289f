// `mslua graph FILE.ir|RECIPE`: a graph as text, DOT or JSON.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/runtime/compile.h"
#include "core/runtime/executable.h"
#include "lua/graph_lua.h"
#include "lua/verbs.h"

namespace mslua {
namespace {

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') absl::StrAppend(&out, "\\", absl::string_view(&c, 1));
    else if (static_cast<unsigned char>(c) < 0x20) absl::StrAppend(&out, "\\u00", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    else out += c;
  }
  return out + "\"";
}

// One object a node, one a line: {"id", "op", "inputs": [[node, output]], "types", "attrs", "location"}.
std::string Json(const Graph& graph) {
  std::string out;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    absl::StrAppend(&out, "{\"id\": ", i, ", \"op\": ", JsonString(n.op->name), ", \"inputs\": [",
                    absl::StrJoin(n.inputs, ", ", [](std::string* o, Value v) { absl::StrAppend(o, "[", v.node, ", ", v.output, "]"); }), "], \"types\": [",
                    absl::StrJoin(n.outputs, ", ", [](std::string* o, const TensorType& t) { o->append(JsonString(ToString(t))); }), "], \"attrs\": {",
                    absl::StrJoin(n.attrs.items(), ", ", [](std::string* o, const auto& a) { absl::StrAppend(o, JsonString(a.first), ": ", JsonString(AttrText(a.second))); }), "}");
    if (n.location) absl::StrAppend(&out, ", \"location\": ", JsonString(ToString(*n.location)));
    absl::StrAppend(&out, "}\n");
  }
  for (const GraphOutput& o : graph.outputs) {
    absl::StrAppend(&out, "{\"output\": ", JsonString(o.name), ", \"value\": [", o.value.node, ", ", o.value.output, "]",
                    o.updates.empty() ? "" : absl::StrCat(", \"updates\": ", JsonString(o.updates)), "}\n");
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
StatusOr<Graph> AfterPass(const Graph& graph, Store* store, const std::string& pass) {
  char folder[] = "/tmp/mslua-graph-XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::InternalError("cannot make a temporary folder");
  CompileOptions options;
  options.save_graphs = 2;
  options.save_graphs_path = folder;
  const auto compiled = Executable::Compile(graph, store, options);
  const std::string dumps = absl::StrCat(folder, "/rank_0");
  std::set<std::string> names;
  std::string found;
  if (DIR* d = opendir(dumps.c_str())) {
    while (const dirent* e = readdir(d)) {
      const std::string name = e->d_name;
      if (name.size() < 7 || !absl::EndsWith(name, ".ir")) continue;
      names.insert(name.substr(3, name.size() - 6));
      if (names.count(pass) && name.substr(3, name.size() - 6) == pass) found = absl::StrCat(dumps, "/", name);
    }
    closedir(d);
  }
  const auto text = found.empty() ? StatusOr<std::string>(std::string()) : ReadText(found);
  if (DIR* d = opendir(dumps.c_str())) {
    while (const dirent* e = readdir(d)) unlink(absl::StrCat(dumps, "/", e->d_name).c_str());
    closedir(d);
  }
  rmdir(dumps.c_str());
  rmdir(folder);
  RETURN_IF_ERROR(compiled.status());
  if (found.empty()) return absl::InvalidArgumentError(absl::StrCat("there is no pass '", pass, "'; there are ", absl::StrJoin(names, ", ")));
  RETURN_IF_ERROR(text.status());
  return ParseGraph(*text);
}

StatusOr<Graph> GraphOf(const cli::CommandLine& command, const std::string& file) {
  if (absl::EndsWith(file, ".ir")) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(file));
    auto graph = ParseGraph(text);
    if (!graph.ok()) return Annotate(graph.status(), file);
    return graph;
  }
  if (access(file.c_str(), R_OK) != 0) return absl::NotFoundError(absl::StrCat("cannot read ", file));
  ASSIGN_OR_RETURN(const auto session, Session::Create(OptionsOf(command)));
  RETURN_IF_ERROR(session->RunText("return require('mslua.verbs').graph()", "=mslua/verb"));
  const auto* traced = ToObject<std::shared_ptr<TracedGraph>>(session->lua(), -1);
  if (traced == nullptr) return absl::InternalError("mslua.verbs.graph() gave no graph");
  for (const auto& p : (*traced)->parameters) RETURN_IF_ERROR(ValueOf(*session, *p).status());
  if (command.Given("pass")) return AfterPass((*traced)->graph, &session->store(), command.String("pass"));
  ASSIGN_OR_RETURN(const auto executable, Executable::Compile((*traced)->graph, &session->store()));
  return executable->graph();
}

}  // namespace

int RunGraph(const cli::CommandLine& command) {
  const auto graph = GraphOf(command, command.positional[0]);
  if (!graph.ok()) return Report(graph.status());
  const std::string format = command.String("format");
  const std::string text = format == "dot" ? ToDot(*graph) : format == "json" ? Json(*graph) : ToString(*graph);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace mslua
