#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

// Of ranks that train together some may have nothing of their own to save.
StatusOr<Answer> Save(Steering& steering, const Request& request, const TrainState&, bool*) {
  const TrainingView& view = steering.view();
  const Command& command = request.command;
  if (steering.bad_loss()) return absl::FailedPreconditionError("the loss is NaN; the checkpoint is not saved");
  if (!view.save) {
    if (view.rank > 0) return Answer();
    return absl::FailedPreconditionError("this run saves no checkpoints: it has no run folder, or no checkpoint = {}");
  }
  ASSIGN_OR_RETURN(const std::string path, view.save(command.args.empty() ? "" : command.args[0]));
  if (path.empty()) return Answer();
  return Answer{absl::StrCat("saved ", path), absl::StrCat("{\"path\":", Dump(path), "}")};
}

}  // namespace

MSLUA_COMMAND(save) {
  CommandDef def("save", "[NAME]", "a checkpoint now", 0, 1);
  def.place = 340;
  def.writes = true;
  def.between_steps = Save;
  return def;
}

}  // namespace mslua::endpoint
