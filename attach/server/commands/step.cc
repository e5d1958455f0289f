#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Step(Steering& steering, const Request& request, const TrainState& state, bool* later) {
  ASSIGN_OR_RETURN(const int64_t steps, CountOf(request.command, 1));
  if (!steering.paused()) return absl::FailedPreconditionError("the job is not paused (.pause)");
  constexpr int64_t kMostSteps = int64_t{1} << 53;
  if (steps > kMostSteps)
    return absl::InvalidArgumentError(absl::StrCat("expected at most ", kMostSteps, " steps, got ", steps));
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
