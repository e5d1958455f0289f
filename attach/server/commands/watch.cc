#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> AddWatch(Steering& steering, const Request& request, const TrainState&, bool*) {
  int64_t every = 1, limit = 100;
  const auto& args = request.command.args;
  for (size_t i = 1; i < args.size(); i += 2) {
    const bool is_every = args[i] == "every";
    if ((!is_every && args[i] != "limit") || i + 1 == args.size())
      return absl::InvalidArgumentError("usage: .watch NAME [every N] [limit M]");
    ASSIGN_OR_RETURN(*(is_every ? &every : &limit), ParseCount(args[i + 1], 1, args[i]));
  }
  Request asked = request;
  ASSIGN_OR_RETURN(const Named named, steering.watches().Find(args[0], /*whole=*/true, &asked));
  // A plan that cannot be made is this command's error.
  RETURN_IF_ERROR(steering.watches().Add(asked, named, every, limit));
  if (!named.here()) return Answer();
  return Answer{
      absl::StrCat("watching ", named.name, " ", ToString(named.type), " every ", every,
                   every == 1 ? " step" : " steps", ", ", limit, " samples", WhoseText(steering.view(), named)),
      ""};
}

}  // namespace

MSLUA_COMMAND(watch) {
  CommandDef def("watch", "NAME [every N] [limit M]", "its statistics every N steps", 1, 5);
  def.place = 230;
  def.until_leave = true;
  def.between_steps = AddWatch;
  return def;
}

}  // namespace mslua::endpoint
