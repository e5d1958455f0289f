#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Resume(Steering& steering, const Request&, const TrainState& state, bool*) {
  if (!steering.paused() && !steering.pause_is_to_come()) {
    return absl::FailedPreconditionError("the job is not paused");
  }
  steering.CancelPause(absl::StrCat(".resume came at step ", state.step, ", before the pause"));
  steering.Continue();
  return AtStep("resumed", state.step);
}

}  // namespace

MSLUA_COMMAND(resume) {
  CommandDef def("resume", "", "continue");
  def.place = 320;
  def.writes = true;
  def.between_steps = Resume;
  return def;
}

}  // namespace mslua::endpoint
