#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "attach/server/commands/define.h"
#include "attach/server/curve.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Plot(const Snapshots& rank, const Command& command) {
  if (!command.args.empty() && command.args[0] != "loss")
    return absl::InvalidArgumentError(".plot draws the loss; `mslua plot RUN --keys K` draws what metrics.jsonl holds");
  int64_t first = 0;
  const std::vector<float> losses = rank.Losses(TrainProgress::kLosses, &first);
  if (losses.empty()) return absl::FailedPreconditionError("no step yet");
  return Answer{DrawCurve(losses, first, 64, 10, absl::StrCat(rank.view().name, ", loss")),
                Dump({{"first_step", first}, {"losses", losses}})};
}

}  // namespace

MSLUA_COMMAND(plot) {
  CommandDef def("plot", "[loss]", "the curve of the last 4096 steps", 0, 1);
  def.place = 100;
  def.at_once = Plot;
  return def;
}

}  // namespace mslua::endpoint
