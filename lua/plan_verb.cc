// `mslua plan RECIPE -n N`: what N ranks would run, without having them. A list of sections, each a table.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/runtime/collective_kernel.h"
#include "core/runtime/compile.h"
#include "lua/graph_lua.h"
#include "lua/json.h"
#include "lua/verbs.h"

namespace mslua {
namespace {

// One section: rows of named cells, in the order of `columns`.
struct Section {
  std::string name;  // "collectives"
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::string summary;
};

std::string Bytes(int64_t bytes) {
  if (bytes < 1 << 10) return absl::StrCat(bytes, " B");
  if (bytes < 1 << 20) return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / (1 << 10));
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

// The messages of one step, in the order in which they begin.
Section Collectives(const Graph& graph) {
  Section s{"collectives", "messages of a step", {"operation", "ranks", "tensors", "bytes", "first"}, {}, ""};
  int64_t tensors = 0, bytes = 0;
  for (const Node& n : graph.nodes) {
    if (!IsCollective(n) || n.attrs.Ints("group").size() < 2 || n.op->name == "all_reduce_wait") continue;
    int64_t mine = 0;
    for (Value v : n.inputs) mine += graph.TypeOf(v).bytes();
    const bool bucket = n.op->name == "all_reduce_start";
    const AttrValue* op = n.attrs.Find("op");
    const int64_t members = n.attrs.Has("_members") ? n.attrs.Int("_members") : static_cast<int64_t>(n.inputs.size());
    s.rows.push_back({absl::StrCat(bucket ? "all_reduce" : n.op->name, op ? " " : "", op ? n.attrs.Str("op") : ""),
                      absl::StrCat(n.attrs.Ints("group").size()), absl::StrCat(members), absl::StrCat(mine),
                      n.location ? ToString(*n.location) : ""});
    tensors += members;
    bytes += mine;
  }
  s.summary = absl::StrCat(s.rows.size(), " messages, ", tensors, " tensors, ", Bytes(bytes), " a step");
  return s;
}

Section Operators(const Graph& graph) {
  Section s{"operators", "the step", {"operator", "nodes"}, {}, ""};
  std::map<std::string, int> counts;
  for (const Node& n : graph.nodes) {
    if (n.op->name != "input" && n.op->name != "constant") ++counts[n.op->name];
  }
  int sum = 0;
  for (const auto& [name, count] : counts) {
    s.rows.push_back({name, absl::StrCat(count)});
    sum += count;
  }
  s.summary = absl::StrCat(sum, " nodes");
  return s;
}

void PrintText(const Section& s) {
  std::printf("%s: %s\n", s.title.c_str(), s.summary.c_str());
  if (s.rows.empty()) return;
  std::vector<size_t> width;
  for (const std::string& c : s.columns) width.push_back(c.size());
  for (const auto& row : s.rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text = " ";
    // Names to the left, numbers to the right.
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool left = i == 0 || i + 1 == cells.size();
      absl::StrAppendFormat(&text, left ? " %-*s" : " %*s", static_cast<int>(width[i]), cells[i]);
    }
    absl::StripTrailingAsciiWhitespace(&text);
    std::printf("%s\n", text.c_str());
  };
  line(s.columns);
  for (const auto& row : s.rows) line(row);
}

void PrintJson(const Section& s) {
  for (const auto& row : s.rows) {
    std::string out = absl::StrCat("{\"section\": ", JsonString(s.name));
    for (size_t i = 0; i < row.size(); ++i) {
      const bool number = !row[i].empty() && row[i].find_first_not_of("0123456789") == std::string::npos;
      absl::StrAppend(&out, ", ", JsonString(s.columns[i]), ": ", number ? row[i] : JsonString(row[i]));
    }
    std::printf("%s}\n", out.c_str());
  }
}

StatusOr<Graph> StepOf(const cli::CommandLine& command, int64_t ranks) {
  SessionOptions options = OptionsOf(command);
  options.ranks = static_cast<int>(ranks);
  ASSIGN_OR_RETURN(const auto session, Session::Create(std::move(options)));
  RETURN_IF_ERROR(session->RunText("return require('mslua.verbs').plan()", "=mslua/verb"));
  // The number of ranks that the recipe asks for, where the command line has none.
  if (lua_type(session->lua(), -1) == LUA_TNUMBER && !command.Given("n")) {
    const auto asked = static_cast<int64_t>(lua_tonumber(session->lua(), -1));
    if (asked != ranks) return StepOf(command, asked);
  }
  const auto* traced = ToObject<std::shared_ptr<TracedGraph>>(session->lua(), -1);
  if (traced == nullptr) return absl::InternalError("mslua.verbs.plan() gave no graph");
  return RunPasses((*traced)->graph, {});
}

}  // namespace

int RunPlan(const cli::CommandLine& command) {
  const auto graph = StepOf(command, command.Int("n"));
  if (!graph.ok()) return Report(graph.status());
  for (const Section& s : {Operators(*graph), Collectives(*graph)}) {
    if (command.Given("json"))
      PrintJson(s);
    else
      PrintText(s);
  }
  return 0;
}

}  // namespace mslua
