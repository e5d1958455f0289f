#include "absl/strings/str_format.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Memory(const Snapshots& rank, const Command&) {
  const int64_t resident = ResidentBytes();
  const Json json = {{"resident", resident},
                     {"store", rank.store_bytes()},
                     {"activations", rank.report().workspace_bytes},
                     {"activations_without_reuse", rank.report().sum_of_value_bytes}};
  return Answer{
      absl::StrFormat("resident      %s\nstore         %s in %d tensors\nactivations   %s (%s without reuse)\n",
                      BytesText(resident), BytesText(rank.store_bytes()), rank.stored().size(),
                      BytesText(rank.report().workspace_bytes), BytesText(rank.report().sum_of_value_bytes)),
      Dump(json)};
}

}  // namespace

MSLUA_COMMAND(mem) {
  CommandDef def("mem", "", "memory of the rank");
  def.place = 40;
  def.each_rank = true;
  def.at_once = Memory;
  return def;
}

}  // namespace mslua::endpoint
