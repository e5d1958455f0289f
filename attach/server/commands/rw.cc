#include "attach/server/commands/define.h"
#include "attach/server/hub.h"

namespace mslua::endpoint {

MSLUA_COMMAND(rw) {
  CommandDef def("rw", "", "take the writer lock, to steer");
  def.place = 140;
  def.by_hub = [](Hub& hub, const Caller& caller) { return hub.TakeLock(caller); };
  return def;
}

}  // namespace mslua::endpoint
