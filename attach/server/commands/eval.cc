#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Evaluate(Steering& steering, const Request&, const TrainState&, bool*) {
  if (!steering.view().evaluate) return absl::FailedPreconditionError("the recipe has no eval_dataset");
  ASSIGN_OR_RETURN(const std::string line, steering.view().evaluate());
  return Answer{line, ""};
}

}  // namespace

MSLUA_COMMAND(eval) {
  CommandDef def("eval", "", "evaluate now");
  def.place = 350;
  def.writes = true;
  def.between_steps = Evaluate;
  return def;
}

}  // namespace mslua::endpoint
