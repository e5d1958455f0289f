#include "attach/server/boundary.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
MSLUA_COMMAND(watches) {
  CommandDef def("watches", "", "what is watched and which breaks wait");
  def.place = 170;
  def.at_once = [](const Snapshots& rank, const Command&) -> StatusOr<Answer> {
    return Answer{rank.boundary().Watches(), ""};
  };
  return def;
}

}  // namespace mslua::endpoint
