#include <cmath>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "attach/server/commands/define.h"
#include "attach/server/steering.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Set(Steering& steering, const Request& request, const TrainState& state, bool*) {
  Trainer& trainer = *steering.view().trainer;
  const std::string& text = request.command.args[0];
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return absl::InvalidArgumentError("usage: .set lr=V or lr=schedule");
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  double v = std::nan("");
  if (value != "schedule" && (!absl::SimpleAtod(value, &v) || !std::isfinite(v) || v < 0))
    return absl::InvalidArgumentError(
        absl::StrCat(".set ", name, ": expected a finite number, at least 0, or 'schedule', got '", value, "'"));
  const int64_t at = request.command.at;
  if (at >= 0 && at < state.step) {
    return absl::InvalidArgumentError(absl::StrCat(".set ", name, " at ", at, ": expected a step that is to come, but ",
                                                   state.step, " steps are done; without 'at' it is set now"));
  }
  double before = std::nan("");
  std::vector<std::string> names;
  for (size_t i = 0; i < trainer.scalars().size(); ++i) {
    names.push_back(trainer.scalars()[i].input);
    if (names.back() == name) before = trainer.ScalarNext(static_cast<int>(i));
  }
  if (!trainer.Override(name, v, at).ok())
    return absl::NotFoundError(
        absl::StrCat("there is no '", name, "' to set; only ", absl::StrJoin(names, " and "), " can be set"));
  if (at > state.step) {
    steering.Schedule({at, request.client, name, request.command.text});
    return Answer{absl::StrCat("scheduled at step ", at, ": ", name, " -> ", value), ""};
  }
  trainer.DropLater(name, state.step);  // what is due has no effect after this
  std::string dropped;
  if (value == "schedule") {
    const int64_t later = trainer.DropLater(name, INT64_MAX);
    steering.Unschedule(name);
    if (later > 0) dropped = absl::StrCat("; ", later, later == 1 ? " later change" : " later changes", " dropped");
  }
  return Answer{absl::StrFormat("%s %g -> %s%s", name, before, value, dropped), ""};
}

}  // namespace

MSLUA_COMMAND(set) {
  CommandDef def("set", "lr=V|lr=schedule [at STEP]",
                 "override a scheduled scalar; lr=schedule ends that, and drops changes to come", 1, 1);
  def.place = 330;
  def.writes = true;
  def.kept = true;
  def.takes_step = true;
  def.named_with = "=";
  def.between_steps = Set;
  return def;
}

}  // namespace mslua::endpoint
