#include "lua/trainer_lua.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/exit_code.h"
#include "lua/compile_graph.h"
#include "lua/tensor_lua.h"
#include "lua/trainer_run.h"
#include "train/compare_first_batch.h"
#include "train/saved_tensors.h"

namespace mslua {

template <>
struct KindName<std::shared_ptr<TrainingSpec>> {
  static constexpr const char* value = "Trainer";
};

namespace {

StatusOr<TrainingSpec*> Self(lua_State* L) {
  const auto* t = ToObject<std::shared_ptr<TrainingSpec>>(L, 1);
  if (t == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("expected a Trainer before the colon, got ", Describe(L, 1)));
  return t->get();
}

StatusOr<int> MakeTrainer(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(auto t, ReadTrainingSpec(L, session));
  PushObject<std::shared_ptr<TrainingSpec>>(L, std::move(t));
  return 1;
}

StatusOr<int> RunTrainer(lua_State* L, Session& session) {
  if (session.trace != nullptr) return absl::FailedPreconditionError("training inside a trace");
  ASSIGN_OR_RETURN(TrainingSpec* const t, Self(L));
  ASSIGN_OR_RETURN(const double loss, RunTraining(t, session));
  lua_pushnumber(L, loss);
  return 1;
}

// trainer:profile {steps =, steps_only =, json =, trace =}
StatusOr<int> ProfileTrainer(lua_State* L, Session& session) {
  if (session.trace != nullptr) return absl::FailedPreconditionError("training inside a trace");
  ASSIGN_OR_RETURN(TrainingSpec* const t, Self(L));
  RETURN_IF_ERROR(CheckFields(L, 2, "profile", {"steps", "steps_only", "json", "trace"}));
  ASSIGN_OR_RETURN(const int64_t steps, FieldInt(L, 2, "steps", 10));
  ASSIGN_OR_RETURN(const bool steps_only, FieldBool(L, 2, "steps_only", false));
  ASSIGN_OR_RETURN(const bool json, FieldBool(L, 2, "json", false));
  ASSIGN_OR_RETURN(const std::string trace, FieldString(L, 2, "trace", ""));
  if (steps < 1) return absl::InvalidArgumentError("profile: steps: expected 1 or more");
  RETURN_IF_ERROR(ProfileTraining(t, session, steps, steps_only, json, trace));
  return 0;
}

StatusOr<int> TrainerMetrics(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const TrainingSpec* const t, Self(L));
  lua_newtable(L);
  for (const auto& f : t->progress.found) {
    lua_pushnumber(L, f.second);
    lua_setfield(L, -2, f.first.c_str());
  }
  return 1;
}

// "Trainer: loss 0.25, eval_loss 0.3": what trainer:metrics() has.
StatusOr<int> TrainerText(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const TrainingSpec* const t, Self(L));
  const auto number = [](std::string* out, const auto& f) { absl::StrAppend(out, f.first, " ", f.second); };
  const std::string found = absl::StrJoin(t->progress.found, ", ", number);
  PushString(L, found.empty() ? "Trainer" : absl::StrCat("Trainer: ", found));
  return 1;
}

// core.evaluate(graph, dataset, together)
StatusOr<int> Evaluate(lua_State* L, Session& session) {
  const auto* graph = ToObject<std::shared_ptr<TracedGraph>>(L, 1);
  const auto* dataset = ToObject<std::shared_ptr<DatasetHandle>>(L, 2);
  if (graph == nullptr || dataset == nullptr)
    return absl::InvalidArgumentError("evaluate: expected a Graph and a Dataset");
  ASSIGN_OR_RETURN(const TrainingData data, OpenEval(session, **dataset, (*graph)->sharded));
  data::Loader loader(data.pipeline, data.loader);
  if ((*graph)->sharded && session.groups() != nullptr) CompareFirstBatch(*session.groups(), data, &loader);
  ASSIGN_OR_RETURN(const auto executable, CompileGraph(session, **graph));
  ASSIGN_OR_RETURN(auto varying, VaryingOf(session.state(), **graph));
  const bool shared = lua_toboolean(L, 3) != 0 && !(*graph)->sharded;
  ASSIGN_OR_RETURN(const auto evaluator,
                   Evaluator::Create(executable.get(), &loader, shared ? session.groups() : nullptr,
                                     &session.state().store, std::move(varying)));
  const auto sums = evaluator->Run();
  if (absl::IsDataLoss(sums.status())) return WithExitCode(sums.status(), kExitData);
  RETURN_IF_ERROR(sums.status());
  PushSums(L, *sums);
  lua_pushnumber(L, static_cast<double>(evaluator->samples()));
  return 2;
}

}  // namespace

void OpenTrainers(lua_State* L) {
  NewKind<std::shared_ptr<TrainingSpec>>(L);
  lua_newtable(L);
  SetFunctions(L, {{"run", Entry<RunTrainer>}, {"profile", Entry<ProfileTrainer>}, {"metrics", Entry<TrainerMetrics>}});
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, Entry<TrainerText>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  SetFunctions(L, {{"trainer", Entry<MakeTrainer>}, {"evaluate", Entry<Evaluate>}});
}

}  // namespace mslua
