#include <unistd.h>

#include "absl/strings/str_format.h"
#include "attach/server/answer_json.h"
#include "attach/server/answer_text.h"
#include "attach/server/combine.h"
#include "attach/server/commands/define.h"
#include "attach/server/snapshot.h"

namespace mslua::endpoint {
namespace {

std::string Heading() {
  return absl::StrFormat("%-4s %-15s %-8s %-10s %-14s %-8s %-10s %-9s %s\n", "rank", "host", "pid", "job epoch",
                         "phase", "step", "samples/s", "rss", "age");
}

std::string Line(const Snapshots& rank) {
  const TrainProgress& p = rank.view().trainer->progress();
  const double samples_per_s = p.SamplesPerSecond();
  const std::string rate =
      samples_per_s < 10 ? absl::StrFormat("%.3g", samples_per_s) : absl::StrFormat("%.1f", samples_per_s);
  return absl::StrFormat("%-4d %-15s %-8d %-10d %-14s %-8d %-10s %-9s %.1fs\n", rank.view().rank, rank.host(), getpid(),
                         rank.view().job_epoch, PhaseName(p.phase.load()), p.step.load(), rate,
                         BytesText(ResidentBytes()),
                         1e-9 * static_cast<double>(TrainProgress::CoarseNow() - p.since_ns.load()));
}

StatusOr<Answer> Ranks(const Snapshots& rank, const Command&) {
  TrainProgress& p = rank.view().trainer->progress();
  const Json json = {{"rank", rank.view().rank},
                     {"host", rank.host()},
                     {"pid", getpid()},
                     {"job_epoch", rank.view().job_epoch},
                     {"phase", PhaseName(p.phase.load())},
                     {"step", p.step.load()},
                     {"epoch", p.epoch.load() + 1},
                     {"samples_per_s", p.SamplesPerSecond()},
                     {"rss", ResidentBytes()}};
  return Answer{Heading() + Line(rank), Dump(json)};
}

}  // namespace

MSLUA_COMMAND(ranks) {
  CommandDef def("ranks", "", "each rank: process, how often the ranks have met, phase, step, speed, memory");
  def.place = 10;
  def.each_rank = true;
  def.at_once = Ranks;
  def.names_rank = true;
  // One table: the heading once.
  def.combine = [](const Command& command, const Answers& answers, absl::Duration) -> StatusOr<Answer> {
    Answers lines = answers;
    bool first = true;
    for (auto& [rank, answer] : lines) {
      if (!answer.ok()) continue;
      if (!first) answer->text = answer->text.substr(answer->text.find('\n') + 1);
      first = false;
    }
    return lines.size() == 1 ? lines.begin()->second : ListRanks(command, lines);
  };
  return def;
}

}  // namespace mslua::endpoint
