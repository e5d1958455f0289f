#include "lua/trainer_run.h"

#include <pthread.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/base/parallel_for.h"
#include "core/sharding/search/measured.h"
#include "lua/compile_graph.h"
#include "lua/device.h"
#include "lua/lua_stack.h"
#include "lua/options.h"
#include "train/training.h"

namespace mslua {
namespace {

TrainingFlags FlagsOf(Session& session) {
  lua_State* const L = session.lua();
  const std::string& verb = session.options().verb;
  TrainingFlags flags;
  flags.out = OptionString(L, "out");
  flags.resume = OptionString(L, "resume");
  flags.may_resume = verb != "run" && verb != "repl";
  flags.progress = OptionString(L, "progress");
  flags.saves = OptionInt(L, "fast_dev_run") <= 0 && verb != "verify" && verb != "prof" && verb != "lr-find";
  // To verify a recipe trains for a moment, and is no training of its own. What a device updates is not in memory that
  // outlives the process: such a job starts again from its checkpoints.
  flags.keeps_turns = verb != "verify" && OptionString(L, "device") != "cuda";
  flags.few_steps = OptionInt(L, "max_steps") > 0;
  flags.json = OptionBool(L, "json");
  flags.tune = OptionBool(L, "tune");
  flags.may_attach = OptionInt(L, "no_attach") == 0;
  flags.profile = OptionString(L, "profile");
  if (const auto measured = MeasuredFlops(); measured && OptionString(L, "device") != "cuda")
    flags.peak_flops = *measured * ComputeThreads();
  return flags;
}

TrainingRank RankOf(Session& session) {
  TrainingRank rank;
  rank.state = &session.state();
  rank.job = session.job;
  rank.prints = session.prints;
  rank.prefix = session.prefix;
  rank.dumps = DumpsOf(session);
  rank.flags = FlagsOf(session);
  rank.written = &session.written;
  rank.records = &session.records;
  rank.compile = [&session](const StepGraph& graph, bool share, Decisions* decisions) {
    return CompileGraph(session, graph, share, decisions);
  };
  rank.compile_as_is = [&session](const Graph& graph, Decisions* decisions) {
    CompileOptions options;
    options.rank = session.state().rank;
    options.optimize = false;
    options.device = session.device;
    options.nccl = session.nccl;
    options.decisions = decisions;
    return CompileShared(session, graph, options);
  };
  rank.machine = [&session]() -> StatusOr<std::string> {
    ASSIGN_OR_RETURN(const std::string device, DeviceAndLibraries(session));
    return device.empty() ? ProcessorText() : device;
  };
  rank.device_text = [&session] { return DeviceText(session); };
  lua_State* const L = session.lua();
  const LuaWhereabouts& running = WhereaboutsOf(L);
  rank.user_code_at = [&running] { return ToString(running); };
  rank.user_code_stack = [&running, L, thread = pthread_self()] { return AskLuaStack(L, running, thread); };
  return rank;
}

}  // namespace

StatusOr<double> RunTraining(TrainingSpec* spec, Session& session) {
  const TrainingRank rank = RankOf(session);
  // A callback may train too.
  const auto outer = std::exchange(session.training_progress, &spec->progress);
  const auto outer_parameters = std::exchange(session.training_parameters, &spec->parameters);
  const auto restore = absl::MakeCleanup([&] {
    session.training_progress = outer;
    session.training_parameters = outer_parameters;
  });
  return Training(spec, rank).Run();
}

Status ProfileTraining(TrainingSpec* spec, Session& session, int64_t steps, bool steps_only, bool json,
                       const std::string& trace) {
  const TrainingRank rank = RankOf(session);
  return Training(spec, rank).Profile(steps, steps_only, json, trace);
}

}  // namespace mslua
