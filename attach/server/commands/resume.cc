#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Resume(Steering& steering, const Request&, const TrainState& state, bool*) {
  if (!steering.paused()) return absl::FailedPreconditionError("the job is not paused");
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
