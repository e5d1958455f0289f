#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Step(Steering& steering, const Request& request, const TrainState& state, bool* later) {
  ASSIGN_OR_RETURN(const int64_t steps, CountOf(request.command, 1));
  if (!steering.paused()) return absl::FailedPreconditionError("the job is not paused (.pause)");
  steering.StepTo(state.step + steps, request);
  *later = true;
  return Answer();
}

}  // namespace

MSLUA_COMMAND(step) {
  CommandDef def("step", "[N]", "make N steps (default 1), then pause again", 0, 1);
  def.place = 310;
  def.writes = true;
  def.until_leave = true;
  def.between_steps = Step;
  return def;
}

}  // namespace mslua::endpoint
