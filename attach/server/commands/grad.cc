#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/statistics_answer.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Grad(Steering& steering, const Request& request, const TrainState& state, bool* later) {
  const std::string& asked = request.command.args[0];
  return steering.watches().ShowOnce(request,
                                     absl::StartsWith(asked, "grad(") ? asked : absl::StrCat("grad(", asked, ")"),
                                     /*whole=*/true, DescribeStatistics, state.step, steering.paused(), later);
}

}  // namespace

MSLUA_COMMAND(grad) {
  CommandDef def("grad", "P", "statistics of the gradient of P at the next step", 1, 1);
  def.place = 210;
  def.between_steps = Grad;
  def.combine = CombineStatistics;
  return def;
}

}  // namespace mslua::endpoint
