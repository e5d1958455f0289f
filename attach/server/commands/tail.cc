#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Tail(const Snapshots& rank, const Command& command) {
  ASSIGN_OR_RETURN(const int64_t n, CountOf(command, 10));
  int64_t first = 0;
  std::string text;
  Json list = Json::array();
  for (const float loss : rank.Losses(n, &first)) {
    absl::StrAppend(&text, "step ", first++, "  loss ", loss, "\n");
    list.push_back(loss);
  }
  return Answer{text.empty() ? "no step yet\n" : text, Dump({{"losses", list}, {"last_step", first - 1}})};
}

}  // namespace

MSLUA_COMMAND(tail) {
  CommandDef def("tail", "[N]", "the last N losses (default 10)", 0, 1);
  def.place = 110;
  def.at_once = Tail;
  return def;
}

}  // namespace mslua::endpoint
