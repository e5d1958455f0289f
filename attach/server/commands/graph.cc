#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> GraphText(const Snapshots& rank, const Command& command) {
  if (command.args.empty()) return Answer{rank.graph(), ""};
  std::string text;
  for (const absl::string_view line : absl::StrSplit(rank.graph(), '\n')) {
    if (absl::StrContains(line, command.args[0])) absl::StrAppend(&text, line, "\n");
  }
  if (text.empty()) return absl::NotFoundError(absl::StrCat("no node of the graph contains '", command.args[0], "'"));
  return Answer{text, ""};
}

}  // namespace

MSLUA_COMMAND(graph) {
  CommandDef def("graph", "[PATTERN]", "the compiled graph, or its nodes that match", 0, 1);
  def.place = 60;
  def.at_once = GraphText;
  return def;
}

}  // namespace mslua::endpoint
