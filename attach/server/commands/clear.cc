#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Clear(Steering& steering, const Request&, const TrainState&, bool*) {
  const size_t n = steering.breaks().Clear();
  return Answer{absl::StrCat(n, n == 1 ? " break" : " breaks", " forgotten"), ""};
}

}  // namespace

MSLUA_COMMAND(clear) {
  CommandDef def("clear", "", "forget all breaks");
  def.place = 370;
  def.writes = true;
  def.between_steps = Clear;
  return def;
}

}  // namespace mslua::endpoint
