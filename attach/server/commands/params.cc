#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"
#include "core/base/shape.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Params(const Snapshots& rank, const Command& command) {
  const std::string pattern = command.args.empty() ? "" : command.args[0];
  std::string text;
  Json list = Json::array();
  int64_t count = 0, elements = 0;
  for (const Snapshots::Stored& s : rank.stored()) {
    if (!absl::StrContains(s.name, pattern)) continue;
    absl::StrAppendFormat(&text, "%-48s %-20s %-10s %s\n", s.name, mslua::ToString(s.type), s.kind,
                          BytesText(s.type.bytes()));
    list.push_back({{"name", s.name}, {"type", mslua::ToString(s.type)}, {"kind", s.kind}, {"bytes", s.type.bytes()}});
    ++count;
    elements += s.type.elements();
  }
  if (count == 0) return absl::NotFoundError(absl::StrCat("no parameter or state contains '", pattern, "'"));
  absl::StrAppendFormat(&text, "%d tensors, %d elements\n", count, elements);
  return Answer{text, Dump({{"tensors", list}})};
}

}  // namespace

MSLUA_COMMAND(params) {
  CommandDef def("params", "[PATTERN]", "parameters and state: type, size", 0, 1);
  def.place = 20;
  def.at_once = Params;
  return def;
}

}  // namespace mslua::endpoint
