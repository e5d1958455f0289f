#include "lua/stop_together.h"

#include "collectives/groups.h"
#include "core/train/agreement.h"
#include "lua/object.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

StatusOr<int> StopTogether(lua_State* L, Session& session) {
  LineStop& stop = CurrentLineStop();
  bool wanted = stop.wanted;
  if (session.groups() != nullptr) {
    stop.together = true;
    ASSIGN_OR_RETURN(const int32_t any, LargestOfRanks(*session.groups(), wanted ? 1 : 0, "the end of a step"));
    wanted = any != 0;
  }
  lua_pushboolean(L, wanted ? 1 : 0);
  return 1;
}

}  // namespace

LineStop& CurrentLineStop() {
  static LineStop stop;
  return stop;
}

void OpenStopTogether(lua_State* L) { SetFunctions(L, {{"stop_together", Entry<StopTogether>}}); }

}  // namespace mslua
