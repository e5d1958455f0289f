#include "attach/server/commands/define.h"
#include "attach/server/statistics_answer.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Stat(Steering& steering, const Request& request, const TrainState& state, bool* later) {
  return steering.watches().ShowOnce(request, request.command.args[0], /*whole=*/false, DescribeStatistics, state.step,
                                     steering.paused(), later);
}

}  // namespace

MSLUA_COMMAND(stat) {
  CommandDef def("stat", "NAME", "mean, extremes, zeros, NaN of a parameter, activation or grad(P)", 1, 1);
  def.place = 200;
  def.between_steps = Stat;
  def.combine = CombineStatistics;
  return def;
}

}  // namespace mslua::endpoint
