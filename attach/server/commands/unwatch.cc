#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> RemoveWatch(Steering& steering, const Request& request, const TrainState&, bool*) {
  std::string name;
  if (!request.command.args.empty()) {
    ASSIGN_OR_RETURN(const Named named, steering.watches().values().Find(request.command.args[0]));
    name = named.name;
  }
  const size_t n = steering.watches().Remove(request.client, name);
  if (n == 0 && !name.empty())
    return absl::NotFoundError(absl::StrCat(".unwatch: you do not watch ", name, " (.watches lists what is watched)"));
  return Answer{absl::StrCat(n, n == 1 ? " watch" : " watches", " ended"), ""};
}

}  // namespace

MSLUA_COMMAND(unwatch) {
  CommandDef def("unwatch", "[NAME]", "ends that watch, or all", 0, 1);
  def.place = 240;
  def.between_steps = RemoveWatch;
  return def;
}

}  // namespace mslua::endpoint
