#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/combine.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"
#include "collectives/flight_recorder.h"

namespace mslua::endpoint {
namespace {

StatusOr<Answer> Diagnosis(const Snapshots& rank, const Command&) {
  const TrainingView& view = rank.view();
  TrainProgress& p = view.trainer->progress();
  const auto phase = p.phase.load();
  const double age = 1e-9 * static_cast<double>(TrainProgress::CoarseNow() - p.since_ns.load());
  const std::string lua = view.lua_at ? view.lua_at() : "";
  const std::vector<RecordedCall> last = view.calls ? view.calls(1) : std::vector<RecordedCall>();
  const bool waits = !last.empty() && last[0].state == "waiting";
  const std::string call = waits ? absl::StrCat(last[0].what, " #", last[0].sequence) : "";
  const char* what = phase == TrainProgress::Phase::kData      ? "waits for data"
                     : phase == TrainProgress::Phase::kCompute ? "computes"
                     : phase == TrainProgress::Phase::kPaused  ? "is paused (.resume continues)"
                                                               : PhaseName(phase);
  const std::string in = waits ? absl::StrFormat(", %.1f s of them in %s", last[0].seconds, call) : "";
  std::string text =
      absl::StrFormat("rank %d (pid %d, host %s) %s after step %d, for %.1f s%s%s%s\n", view.rank, getpid(),
                      rank.host(), what, p.step.load(), age, lua.empty() ? "" : ", in Lua at ", lua, in);
  const Json json = {{"rank", view.rank},     {"pid", getpid()}, {"host", rank.host()}, {"phase", PhaseName(phase)},
                     {"step", p.step.load()}, {"seconds", age},  {"lua", lua},          {"collective", call}};
  return Answer{text, Dump(json)};
}

// From the JSON of each rank's answer ("" for one that does not answer): "ranks 0,1,3 wait for rank 2, in its data for
// 4.1 s, at recipe.lua:14". Empty when nobody is waited for.
std::string WhoIsWaitedFor(const std::map<int, std::string>& diagnoses) {
  std::vector<int> waiting;
  std::vector<std::string> late;
  std::string collective;
  for (const auto& [rank, diagnosis] : diagnoses) {
    auto json = ReadObject(
        diagnosis,
        {{"phase", Field::kText}, {"seconds", Field::kNumber}, {"lua", Field::kText}, {"collective", Field::kText}});
    if (!json) {
      late.push_back(absl::StrCat("rank ", rank, ", which does not answer"));
      continue;
    }
    const std::string phase = (*json)["phase"], lua = (*json)["lua"], entered = (*json)["collective"];
    if (phase == "compute" || !entered.empty()) {
      waiting.push_back(rank);
      if (collective.empty()) collective = entered;
    } else {
      late.push_back(absl::StrFormat("rank %d, in its %s for %.1f s%s%s", rank, phase, (*json)["seconds"].get<double>(),
                                     lua.empty() ? "" : ", at ", lua));
    }
  }
  if (waiting.empty() || late.empty()) return "";
  return absl::StrCat(waiting.size() == 1 ? "rank " : "ranks ", RankList(waiting),
                      waiting.size() == 1 ? " waits" : " wait", " for ", absl::StrJoin(late, "; "),
                      collective.empty() ? "" : absl::StrCat(", in ", collective), "\n");
}
}  // namespace

MSLUA_COMMAND(diag) {
  CommandDef def("diag", "", "what the rank does, for how long, and where");
  def.place = 80;
  def.each_rank = true;
  def.at_once = Diagnosis;
  def.combine = [](const Command& command, const Answers& answers, absl::Duration) -> StatusOr<Answer> {
    if (answers.size() == 1) return answers.begin()->second;
    std::map<int, std::string> diagnoses;
    for (const auto& [rank, answer] : answers) diagnoses[rank] = answer.ok() ? answer->json : "";
    Answer listed = ListRanks(command, answers);
    listed.text += WhoIsWaitedFor(diagnoses);
    return listed;
  };
  def.names_rank = true;
  return def;
}

}  // namespace mslua::endpoint
