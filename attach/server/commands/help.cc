#include "attach/server/commands/define.h"

namespace mslua::endpoint {

MSLUA_COMMAND(help) {
  CommandDef def("help", "", "these commands");
  def.place = 0;
  def.by_hub = [](Hub&, const Caller&) -> StatusOr<Answer> { return Answer{CommandHelp(), ""}; };
  return def;
}

}  // namespace mslua::endpoint
