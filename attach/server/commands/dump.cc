#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "attach/server/answer_json.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"
#include "core/base/dtype.h"
#include "core/checkpoint/safetensors.h"

namespace mslua::endpoint {
namespace {

constexpr int64_t kPrintedElements = 1000;

// Of a rank that is asked.
StatusOr<Answer> Describe(const Shown& shown) {
  const std::string head = absl::StrCat(shown.named.name, " ", ToString(shown.value.type));
  if (!shown.request.reports) return Answer();
  if (shown.request.command.args.size() == 1) {
    if (shown.value.type.elements() > kPrintedElements) {
      return absl::InvalidArgumentError(absl::StrCat(head, " is long: .dump ", shown.named.name, " FILE.safetensors"));
    }
    std::string numbers;
    for (int64_t i = 0; i < shown.value.type.elements(); ++i)
      absl::StrAppend(&numbers, i > 0 ? "," : "",
                      absl::StrFormat("%.9g", LoadAsDouble(shown.value.type.dtype, shown.value.data, i)));
    return Answer{absl::StrCat(head, "\n", numbers),
                  absl::StrCat("{\"name\":", Dump(shown.named.name), ",\"shape\":[",
                               absl::StrJoin(shown.value.type.shape, ","), "],\"values\":[", numbers, "]}")};
  }
  std::string path = shown.request.command.args[1];
  if (!absl::EndsWith(path, ".safetensors"))
    return absl::InvalidArgumentError(absl::StrCat(".dump: expected FILE.safetensors, got '", path, "'"));
  // Each rank that is asked writes its own.
  if (shown.view.rank > 0)
    path = absl::StrCat(absl::StripSuffix(path, ".safetensors"), ".rank_", shown.view.rank, ".safetensors");
  if (path[0] != '/' && !shown.view.folder.empty()) path = absl::StrCat(shown.view.folder, "/", path);
  RETURN_IF_ERROR(
      checkpoint::WriteSafetensors(path, {{shown.named.name, shown.value.type, shown.value.data}}).status());
  return Answer{absl::StrCat(head, " of step ", shown.step, " -> ", path), absl::StrCat("{\"path\":", Dump(path), "}")};
}

StatusOr<Answer> DumpValue(Steering& steering, const Request& request, const TrainState& state, bool* later) {
  return steering.watches().ShowOnce(request, request.command.args[0], Describe, state.step, steering.paused(), later);
}

}  // namespace

MSLUA_COMMAND(dump) {
  CommandDef def("dump", "NAME [FILE.safetensors]", "the value: printed, or written beside the run", 1, 2);
  def.place = 220;
  def.between_steps = DumpValue;
  return def;
}

}  // namespace mslua::endpoint
