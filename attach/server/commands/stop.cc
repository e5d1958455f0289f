#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Stop(Steering& steering, const Request& request, const TrainState& state, bool*) {
  const TrainingView& view = steering.view();
  const auto& args = request.command.args;
  if (!args.empty() && args[0] != "now") return absl::InvalidArgumentError("usage: .stop [now]");
  if (!args.empty() && view.skip_last_save) view.skip_last_save();
  view.trainer->StopTogether();
  return AtStep("stops", state.step);
}

}  // namespace

MSLUA_COMMAND(stop) {
  CommandDef def("stop", "[now]", "end training after a checkpoint, or without one", 0, 1);
  def.place = 380;
  def.writes = true;
  def.between_steps = Stop;
  return def;
}

}  // namespace mslua::endpoint
