#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

constexpr int64_t kProfiledSteps = 50;

StatusOr<Answer> Profile(Steering& steering, const Request& request, const TrainState&, bool* later) {
  ASSIGN_OR_RETURN(const int64_t steps, CountOf(request.command, 1));
  if (steps > kProfiledSteps)
    return absl::InvalidArgumentError(absl::StrCat(".prof: at most ", kProfiledSteps, " steps"));
  if (steering.view().folder.empty())
    return absl::FailedPreconditionError("this run has no folder to write a trace to");
  Request kept = request;
  kept.told = steering.paused();
  RETURN_IF_ERROR(steering.profiling().Begin(kept, steps));
  *later = !kept.told;
  return Answer{absl::StrCat("profiles the next ", steps, steps == 1 ? " step" : " steps"), ""};
}

}  // namespace

MSLUA_COMMAND(prof) {
  CommandDef def("prof", "[N]", "a trace of the next N steps of all ranks, for Perfetto (default 1)", 0, 1);
  def.place = 250;
  def.between_steps = Profile;
  return def;
}

}  // namespace mslua::endpoint
