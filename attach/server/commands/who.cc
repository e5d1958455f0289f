#include "absl/strings/str_cat.h"
#include "attach/server/commands/define.h"
#include "attach/server/hub.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Who(Hub& hub, const Caller&) {
  const int n = hub.clients();
  return Answer{
      absl::StrCat(n, n == 1 ? " client" : " clients",
                   hub.writer_pid() == 0 ? "; nobody steers" : absl::StrCat("; process ", hub.writer_pid(), " steers")),
      ""};
}

}  // namespace

MSLUA_COMMAND(who) {
  CommandDef def("who", "", "attached clients");
  def.place = 130;
  def.by_hub = Who;
  return def;
}

}  // namespace mslua::endpoint
