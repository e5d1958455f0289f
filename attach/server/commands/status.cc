#include "absl/strings/str_format.h"
#include "attach/server/commands/define.h"
#include "attach/server/hub.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> StatusLine(Hub& hub, const Caller&) {
  const TrainProgress& p = hub.view().trainer->progress();
  const auto phase = p.phase.load();
  return Answer{absl::StrFormat("e%d:s%d %s", p.epoch.load() + 1, p.step.load(),
                                phase == TrainProgress::Phase::kPaused ? "PAUSED" : "run"),
                absl::StrFormat("{\"epoch\":%d,\"step\":%d,\"phase\":\"%s\"}", p.epoch.load() + 1, p.step.load(),
                                PhaseName(phase))};
}

}  // namespace

MSLUA_COMMAND(status) {
  CommandDef def("status", "", "epoch, step, running or paused");
  def.place = 120;
  def.by_hub = StatusLine;
  return def;
}

}  // namespace mslua::endpoint
