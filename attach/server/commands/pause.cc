#include "absl/strings/str_cat.h"
#include "attach/server/combine.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Pause(Steering& steering, const Request&, const TrainState& state, bool*) {
  steering.Pause();
  // Before the answer: who asks next sees the pause, though the training thread has not come to it.
  steering.view().trainer->progress().Enter(TrainProgress::Phase::kPaused);
  return AtStep("paused", state.step);
}

}  // namespace

MSLUA_COMMAND(pause) {
  CommandDef def("pause", "", "stop between two steps");
  def.place = 300;
  def.writes = true;
  def.until_leave = true;
  def.between_steps = Pause;
  def.combine = [](const Command& command, const Answers& answers, absl::Duration took) -> StatusOr<Answer> {
    if (answers.size() > 1) return DoneTogether(command, answers, took);
    const Answer& only = *answers.begin()->second;
    return Answer{absl::StrCat(only.text, " on 1/1 ranks"), only.json};
  };
  return def;
}

}  // namespace mslua::endpoint
