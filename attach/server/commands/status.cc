#include "absl/strings/str_format.h"
#include "attach/server/commands/define.h"
#include "attach/server/hub.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> StatusLine(Hub& hub, const Caller&) {
  const TrainProgress& p = hub.view().trainer->progress();
  const auto phase = p.phase.load();
  const int64_t job_epoch = hub.view().job_epoch;
  return Answer{absl::StrFormat("e%d:s%d %s%s", p.epoch.load() + 1, p.step.load(),
                                phase == TrainProgress::Phase::kPaused ? "PAUSED" : "run",
                                job_epoch == 1 ? "" : absl::StrFormat(", job epoch %d", job_epoch)),
                absl::StrFormat("{\"epoch\":%d,\"step\":%d,\"phase\":\"%s\",\"job_epoch\":%d}", p.epoch.load() + 1,
                                p.step.load(), PhaseName(phase), job_epoch)};
}

}  // namespace

MSLUA_COMMAND(status) {
  CommandDef def("status", "", "epoch, step, running or paused; how often the ranks have met, where more than once");
  def.place = 120;
  def.by_hub = StatusLine;
  return def;
}

}  // namespace mslua::endpoint
