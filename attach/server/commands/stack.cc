#include "attach/server/stack.h"

#include "absl/strings/str_cat.h"
#include "attach/server/answer_json.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Stack(const Snapshots& rank, const Command&) {
  const std::string native = NativeStack(rank.view().thread, absl::Milliseconds(300));
  const std::string lua = rank.view().lua_stack ? rank.view().lua_stack() : "";
  return Answer{
      absl::StrCat("rank ", rank.view().rank, ", native\n", native.empty() ? "  (no answer in 0.3 s)\n" : native,
                   lua.empty() ? "" : absl::StrCat("Lua\n", lua)),
      Dump({{"rank", rank.view().rank}, {"native", native}, {"lua", lua}})};
}

}  // namespace

MSLUA_COMMAND(stack) {
  CommandDef def("stack", "", "native and Lua stack of the training thread");
  def.place = 90;
  def.each_rank = true;
  def.at_once = Stack;
  def.names_rank = true;
  return def;
}

}  // namespace mslua::endpoint
