#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> AddBreak(Steering& steering, const Request& request, const TrainState& state, bool*) {
  const std::string text = absl::StrJoin(request.command.args, " ");
  RETURN_IF_ERROR(steering.breaks().Add(request.client, text, state.step));
  return Answer{absl::StrCat("pauses at: ", text, " (once, while you are attached)"), ""};
}

}  // namespace

MSLUA_COMMAND(break) {
  CommandDef def("break", "nan | loss>V | loss<V | step N", "pause once, when that happens", 1, 2);
  def.place = 360;
  def.lua = "breakpoint";
  def.writes = true;
  def.until_leave = true;
  def.between_steps = AddBreak;
  return def;
}

}  // namespace mslua::endpoint
