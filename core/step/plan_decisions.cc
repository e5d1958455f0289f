#include "core/step/plan_decisions.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collectives/groups.h"
#include "core/base/parallel_for.h"
#include "core/base/processor.h"
#include "core/base/version.h"
#include "core/graph/graph.h"
#include "core/kernels/onednn/onednn_version.h"
#include "core/passes/run_passes.h"
#include "core/runtime/plan_cache.h"
#include "core/runtime/stopwatch.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

// The first line of a checkpoint's plan.
std::string FirstLine(const std::string& machine) { return absl::StrCat("for ", machine); }

// Measures what the passes ask, or finds what was measured before.
StatusOr<Decisions> Tune(const Graph& graph, const PassOptions& options) {
  const PlanCache cache(PlanCache::UserFolder());
  const std::string key = PlanCache::Key({"tune", PlanMachine(), ToString(graph)});
  Decisions decisions(SecondsOf);
  if (const auto kept = cache.Find(key)) {
    if (decisions.Take(*kept).ok()) {
      std::fprintf(stderr, "mslua: %lld decisions of the plan from the cache\n",
                   static_cast<long long>(decisions.size()));
      return decisions;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  PassOptions measuring = options;
  measuring.decisions = &decisions;
  measuring.save_graphs = 0;
  RETURN_IF_ERROR(RunPasses(graph, measuring).status());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const Status kept = cache.Keep(key, decisions.ToText());
  std::fprintf(stderr, "mslua: tuned %lld decisions of the plan in %.1f s%s\n",
               static_cast<long long>(decisions.measured()), seconds.count(),
               kept.ok() ? "" : absl::StrCat("; not kept: ", std::string(kept.message())).c_str());
  return decisions;
}

// The decisions of a checkpoint's plan for this rank's machine. `who`: begins the note, empty: there is none.
Decisions TakeResumed(absl::string_view plan, const std::string& machine, const std::string& who) {
  Decisions decisions;
  const std::string here = FirstLine(machine);
  const absl::string_view made = plan.substr(0, plan.find('\n'));
  std::string text(plan.substr(std::min(plan.size(), made.size() + 1)));
  if (made != here) {
    if (!who.empty())
      std::fprintf(stderr, "%sthe checkpoint's plan is %s; here it is %s: the same mathematics, not the same bits\n",
                   who.c_str(), std::string(made).c_str(), here.c_str());
    const auto of_passes = [](absl::string_view line) { return !absl::StartsWith(line, kLibraryQuestion); };
    const std::vector<std::string> lines = absl::StrSplit(text, '\n', of_passes);
    text = absl::StrJoin(lines, "\n");
  }
  if (const Status s = decisions.Take(text); !s.ok() && !who.empty())
    std::fprintf(stderr, "%sthe checkpoint's plan is not used: %s\n", who.c_str(), std::string(s.message()).c_str());
  return decisions;
}

}  // namespace

std::string PlanMachine() {
  return absl::StrCat("mslua ", kVersion, " ", BuildId(), " for ", ProcessorText(), " oneDNN ", onednn::Version());
}

StatusOr<Decisions> DecidePlan(const std::vector<const Graph*>& graphs, const PassOptions& options, bool tune,
                               Groups* together, const std::string& resumed, const std::string& machine) {
  if (resumed.empty() && !tune) return Decisions();
  // Rank 0's machine and the plan.
  const auto decide = [&]() -> StatusOr<std::string> {
    if (!resumed.empty()) return absl::StrCat(machine, "\n", resumed);
    Decisions all;
    for (const Graph* graph : graphs) {
      ASSIGN_OR_RETURN(const Decisions tuned, Tune(*graph, options));
      RETURN_IF_ERROR(all.Take(tuned.ToText()));
    }
    return absl::StrCat(machine, "\n", all.ToText());
  };
  ASSIGN_OR_RETURN(const std::string text, TextOfFirstRank(together, decide, "the decisions of the plan"));
  const size_t end = text.find('\n');
  const absl::string_view plan = absl::string_view(text).substr(end + 1);
  if (!resumed.empty()) {
    // Of ranks with equal machines the first one says it for all.
    const int rank = together == nullptr ? 0 : together->rank();
    const bool says = rank == 0 || text.substr(0, end) != machine;
    const std::string who = rank == 0 ? "mslua: note: " : absl::StrCat("mslua: note: rank ", rank, ": ");
    return TakeResumed(plan, machine, says ? who : "");
  }
  Decisions decisions;
  RETURN_IF_ERROR(decisions.Take(plan));
  return decisions;
}

std::string PlanText(const Decisions& decisions, const std::string& machine) {
  return absl::StrCat(FirstLine(machine), "\n", decisions.ToText());
}

std::string ProcessorText() { return absl::StrCat(ComputeThreads(), " threads on ", InstructionSets()); }

}  // namespace mslua
