#include "attach/server/commands/define.h"
#include "attach/server/hub.h"

namespace mslua::endpoint {

MSLUA_COMMAND(ro) {
  CommandDef def("ro", "", "give the writer lock back");
  def.place = 150;
  def.by_hub = [](Hub& hub, const Caller& caller) { return hub.ReleaseLock(caller); };
  return def;
}

}  // namespace mslua::endpoint
