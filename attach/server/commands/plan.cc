#include "absl/strings/str_format.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Plan(const Snapshots& rank, const Command&) {
  const Json json = {{"nodes", rank.report().nodes},
                     {"kernels", rank.report().kernels},
                     {"in_place", rank.report().in_place},
                     {"copies", rank.report().copies},
                     {"workspace", rank.report().workspace_bytes},
                     {"compile_seconds", rank.report().compile_seconds}};
  return Answer{
      absl::StrFormat("%d nodes in %d kernels, %d written in place, %d copied; %s of activations; compiled in %.2f s\n",
                      rank.report().nodes, rank.report().kernels, rank.report().in_place, rank.report().copies,
                      BytesText(rank.report().workspace_bytes), rank.report().compile_seconds),
      Dump(json)};
}

}  // namespace

MSLUA_COMMAND(plan) {
  CommandDef def("plan", "", "what compiling came to");
  def.place = 70;
  def.at_once = Plan;
  return def;
}

}  // namespace mslua::endpoint
