#include "lua/trainer_spec.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/hash.h"
#include "lua/callback.h"
#include "lua/lua_hook.h"
#include "lua/optimizer_lua.h"
#include "lua/options.h"
#include "lua/schedule_lua.h"
#include "train/notice.h"

namespace mslua {

namespace {

// Of the recipe's text, which is the same in a run folder's config.lua; empty: no file runs.
StatusOr<std::string> HashOfRecipe(lua_State* L, Session& session) {
  const StackGuard guard(L);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "mslua.recipe");
  RETURN_IF_ERROR(session.Call(1, 1));
  lua_getfield(L, -1, "text");
  RETURN_IF_ERROR(session.Call(0, 1));
  if (lua_isnil(L, -1)) return std::string();
  ASSIGN_OR_RETURN(const std::string text, ReadString(L, -1, "the recipe's text"));
  return Blake2bHex(text).substr(0, 16);
}

// The field `field` of the table at `index`, which the kind `T` names.
template <class T>
StatusOr<std::shared_ptr<T>> FieldObject(lua_State* L, int index, const std::string& what, const char* field) {
  using Shared = std::shared_ptr<T>;
  const StackGuard guard(L);
  lua_getfield(L, index, field);
  const auto* object = ToObject<Shared>(L, -1);
  if (object == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", field, ": expected a ", KindName<Shared>::value, ", got ", Describe(L, -1)));
  }
  return *object;
}

StatusOr<std::shared_ptr<DatasetHandle>> FieldDataset(lua_State* L, int index, const std::string& what) {
  return FieldObject<DatasetHandle>(L, index, what, "dataset");
}

}  // namespace

StatusOr<std::shared_ptr<TracedGraph>> FieldGraph(lua_State* L, int index, const std::string& what) {
  return FieldObject<TracedGraph>(L, index, what, "graph");
}

namespace {

// The opened pipeline of `dataset`, and what a training has to know of it.
TrainingData DataOf(const DatasetHandle& dataset, std::shared_ptr<const data::Pipeline> pipeline) {
  TrainingData data;
  data.pipeline = std::move(pipeline);
  data.loader = dataset.ForLoader();
  const std::string& kind = dataset.description.source().kind();
  const auto source = data::FindSource(kind);
  data.source = source.ok() ? (*source)->title : kind;
  data.divided = dataset.Divided();
  data.repeated = dataset.Repeated();
  data.feeds = dataset.feeds;
  data.sharding = dataset.description.sharding();
  return data;
}

// The number, or list of such, on top of the stack, as JSON.
void AppendNumbers(lua_State* L, std::string* text) {
  if (lua_type(L, -1) != LUA_TTABLE) {
    const double v = lua_tonumber(L, -1);
    absl::StrAppend(text, std::isfinite(v) ? absl::StrCat(v) : "null");
    return;
  }
  text->push_back('[');
  for (int i = 1, n = static_cast<int>(lua_objlen(L, -1)); i <= n; ++i) {
    if (i > 1) text->push_back(',');
    lua_rawgeti(L, -1, i);
    AppendNumbers(L, text);
    lua_pop(L, 1);
  }
  text->push_back(']');
}

// The values of the metrics, in their order, by the Lua function `finish`.
StatusOr<FinishedMetrics> FinishMetrics(Session& session, const Callback& finish, const EvaluationSpec& eval,
                                        const std::vector<MetricSums>& sums, int64_t samples) {
  lua_State* const L = session.lua();
  const StackGuard guard(L);
  finish.Push(L);
  PushSums(L, sums);
  lua_pushnumber(L, static_cast<double>(samples));
  RETURN_IF_ERROR(session.Call(2, 1));
  FinishedMetrics finished;
  for (const MetricInfo& m : eval.metrics) {
    lua_getfield(L, -1, m.name.c_str());
    finished.values.emplace_back(m.name, lua_tonumber(L, -1));
    lua_pop(L, 1);
  }
  for (const std::string& name : eval.matrices) {
    lua_getfield(L, -1, name.c_str());
    std::string text;
    AppendNumbers(L, &text);
    finished.matrices.emplace_back(name, std::move(text));
    lua_pop(L, 1);
  }
  return finished;
}

Status ReadCheckpointSpec(lua_State* L, int index, TrainingSpec* t) {
  RETURN_IF_ERROR(CheckFields(L, index, "checkpoint",
                              {"prefix", "directory", "steps", "seconds", "keep_max", "keep_minutes", "integrated",
                               "async", "exception_save"}));
  auto& k = t->checkpoint.keeper;
  ASSIGN_OR_RETURN(k.prefix, FieldString(L, index, "prefix", "CKP"));
  ASSIGN_OR_RETURN(t->checkpoint_directory, FieldString(L, index, "directory", ""));
  ASSIGN_OR_RETURN(k.save_checkpoint_steps, FieldInt(L, index, "steps", 1));
  ASSIGN_OR_RETURN(k.save_checkpoint_seconds, FieldInt(L, index, "seconds", 0));
  ASSIGN_OR_RETURN(k.keep_checkpoint_max, FieldInt(L, index, "keep_max", 5));
  ASSIGN_OR_RETURN(k.keep_checkpoint_per_n_minutes, FieldInt(L, index, "keep_minutes", 0));
  ASSIGN_OR_RETURN(t->checkpoint.integrated, FieldBool(L, index, "integrated", true));
  ASSIGN_OR_RETURN(t->checkpoint.async_save, FieldBool(L, index, "async", true));
  ASSIGN_OR_RETURN(t->checkpoint.exception_save, FieldBool(L, index, "exception_save", false));
  t->has_checkpoint = true;
  return absl::OkStatus();
}

// The fields `parameters` and `names`, which has one for each.
Status ReadNetwork(lua_State* L, TrainingSpec* t) {
  const StackGuard guard(L);
  lua_getfield(L, 1, "parameters");
  if (lua_isnil(L, -1)) return absl::OkStatus();
  ASSIGN_OR_RETURN(t->parameters, ReadParameters(L, -1, "trainer: parameters"));
  lua_getfield(L, 1, "names");
  const int names = lua_gettop(L);
  if (lua_type(L, names) != LUA_TTABLE || lua_objlen(L, names) != t->parameters.size())
    return absl::InvalidArgumentError("trainer: names: expected a name for each of the parameters");
  for (size_t i = 1; i <= t->parameters.size(); ++i) {
    lua_rawgeti(L, names, static_cast<int>(i));
    ASSIGN_OR_RETURN(std::string name, ReadString(L, -1, "trainer: names"));
    t->parameter_names.push_back(std::move(name));
    lua_pop(L, 1);
  }
  return absl::OkStatus();
}

// The field `companions`, {name =, content =} for each file.
Status ReadCompanions(lua_State* L, TrainingSpec* t) {
  const StackGuard guard(L);
  lua_getfield(L, 1, "companions");
  if (lua_isnil(L, -1)) return absl::OkStatus();
  auto companions = std::make_shared<std::vector<std::pair<std::string, std::string>>>();
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(std::string name, FieldString(L, -1, "name", ""));
    ASSIGN_OR_RETURN(std::string content, FieldString(L, -1, "content", ""));
    companions->emplace_back(std::move(name), std::move(content));
    lua_pop(L, 1);
  }
  t->companions = std::move(companions);
  return absl::OkStatus();
}

// The list of texts in a field; nil: none.
StatusOr<std::vector<std::string>> ReadTexts(lua_State* L, int index, const char* name) {
  const StackGuard guard(L);
  std::vector<std::string> texts;
  lua_getfield(L, index, name);
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(std::string text, ReadString(L, -1, absl::StrCat("eval: ", name, "[", i, "]")));
    texts.push_back(std::move(text));
    lua_pop(L, 1);
  }
  return texts;
}

// The field `samples`: {scale =, shift =, characters =}, or nil.
Status ReadSampleForm(lua_State* L, int index, SampleForm* form) {
  const StackGuard guard(L);
  lua_getfield(L, index, "samples");
  if (lua_isnil(L, -1)) return absl::OkStatus();
  const int at = lua_gettop(L);
  RETURN_IF_ERROR(CheckFields(L, at, "eval: samples", {"scale", "shift", "characters"}));
  ASSIGN_OR_RETURN(form->characters, ReadTexts(L, at, "characters"));
  for (const auto& [name, numbers] : {std::make_pair("scale", &form->scale), {"shift", &form->shift}}) {
    lua_getfield(L, at, name);
    for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
      lua_rawgeti(L, -1, i);
      ASSIGN_OR_RETURN(const double number, ReadNumber(L, -1, "eval: samples"));
      numbers->push_back(number);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
  return absl::OkStatus();
}

Status ReadEvalSpec(lua_State* L, Session& session, int index, EvaluationSpec* eval) {
  ASSIGN_OR_RETURN(eval->matrices, ReadTexts(L, index, "matrices"));
  ASSIGN_OR_RETURN(eval->labels, ReadTexts(L, index, "labels"));
  RETURN_IF_ERROR(ReadSampleForm(L, index, &eval->samples));
  ASSIGN_OR_RETURN(eval->graph, FieldGraph(L, index, "eval"));
  ASSIGN_OR_RETURN(const auto dataset, FieldDataset(L, index, "eval"));
  eval->open = [&session, dataset, whole = eval->graph->sharded] { return OpenEval(session, *dataset, whole); };
  ASSIGN_OR_RETURN(eval->every_epochs, FieldInt(L, index, "every_epochs", 1));
  ASSIGN_OR_RETURN(eval->every_steps, FieldInt(L, index, "every_steps", 0));
  const StackGuard guard(L);
  lua_getfield(L, index, "metrics");
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    MetricInfo info;
    ASSIGN_OR_RETURN(info.name, FieldString(L, -1, "name", absl::StrCat("metric", i)));
    ASSIGN_OR_RETURN(info.kind, FieldString(L, -1, "kind", "mean"));
    eval->metrics.push_back(std::move(info));
    lua_pop(L, 1);
  }
  if (const Callback finish = Callback::Field(session, index, "finish"); finish.ok()) {
    eval->finish = [&session, finish, eval](const std::vector<MetricSums>& sums, int64_t samples) {
      return FinishMetrics(session, finish, *eval, sums, samples);
    };
  }
  return absl::OkStatus();
}

// The field `name` of the table at 1; none where it is nil.
StatusOr<absl::optional<TrainingSpec::Watch>> ReadWatch(lua_State* L, const char* name) {
  const StackGuard guard(L);
  lua_getfield(L, 1, name);
  if (lua_isnil(L, -1)) return absl::optional<TrainingSpec::Watch>();
  const int at = lua_gettop(L);
  TrainingSpec::Watch watch;
  ASSIGN_OR_RETURN(watch.monitor, FieldString(L, at, "monitor", "eval_loss"));
  ASSIGN_OR_RETURN(watch.mode, FieldString(L, at, "mode", "min"));
  ASSIGN_OR_RETURN(watch.min_delta, FieldNumber(L, at, "min_delta", 0));
  ASSIGN_OR_RETURN(watch.patience, FieldInt(L, at, "patience", 0));
  return absl::make_optional(std::move(watch));
}

// When losses are printed: every so many steps, or "epoch".
Status ReadLogging(lua_State* L, TrainingSpec* t) {
  lua_getfield(L, 1, "loss_every");
  if (lua_type(L, -1) == LUA_TSTRING) {
    t->log_epochs = true;
  } else if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(t->log_every, ReadInt(L, -1, "loss_every"));
  }
  return absl::OkStatus();
}

// The fields `schedule` and `lr_function` of the table at `index`, one of which is needed.
Status ReadRate(lua_State* L, Session& session, int index, RateSpec* rate) {
  const StackGuard guard(L);
  if (const Callback function = Callback::Field(session, index, "lr_function"); function.ok()) {
    rate->function = [&session, function](int64_t step, int64_t epoch) {
      return CallRate(session, function, step, epoch);
    };
  }
  lua_getfield(L, index, "schedule");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(rate->schedule, ReadSchedule(L, -1));
  } else if (!rate->function) {
    return absl::InvalidArgumentError("trainer: a schedule or an lr_function is needed");
  }
  return absl::OkStatus();
}

Status ReadLossScale(lua_State* L, TrainingSpec* t) {
  lua_getfield(L, 1, "loss_scale");
  if (lua_isnil(L, -1)) return absl::OkStatus();
  const int at = lua_gettop(L);
  RETURN_IF_ERROR(CheckFields(L, at, "loss_scale", {"kind", "value", "factor", "window"}));
  ASSIGN_OR_RETURN(t->loss_scale_kind, FieldString(L, at, "kind", "fixed"));
  ASSIGN_OR_RETURN(t->loss_scale, FieldNumber(L, at, "value", 1));
  ASSIGN_OR_RETURN(t->loss_scale_factor, FieldNumber(L, at, "factor", 2));
  ASSIGN_OR_RETURN(t->loss_scale_window, FieldInt(L, at, "window", 1000));
  return absl::OkStatus();
}

Status ReadHistograms(lua_State* L, TrainingSpec* t) {
  const StackGuard guard(L);
  lua_getfield(L, 1, "histograms");
  if (lua_isnil(L, -1)) return absl::OkStatus();
  const int at = lua_gettop(L);
  RETURN_IF_ERROR(CheckFields(L, at, "histograms", {"every_steps", "parameters", "gradients"}));
  ASSIGN_OR_RETURN(t->histograms.every, FieldInt(L, at, "every_steps", 100));
  ASSIGN_OR_RETURN(t->histograms.parameters, FieldBool(L, at, "parameters", true));
  ASSIGN_OR_RETURN(t->histograms.gradients, FieldBool(L, at, "gradients", false));
  return absl::OkStatus();
}

Status ReadPlateau(lua_State* L, TrainingSpec* t) {
  ASSIGN_OR_RETURN(t->plateau, ReadWatch(L, "plateau"));
  if (!t->plateau) return absl::OkStatus();
  lua_getfield(L, 1, "plateau");
  const int at = lua_gettop(L);
  t->plateau_options.patience = t->plateau->patience;
  ASSIGN_OR_RETURN(t->plateau_options.factor, FieldNumber(L, at, "factor", t->plateau_options.factor));
  ASSIGN_OR_RETURN(t->plateau_options.cooldown, FieldInt(L, at, "cooldown", t->plateau_options.cooldown));
  ASSIGN_OR_RETURN(t->plateau_options.min_lr, FieldNumber(L, at, "min_lr", t->plateau_options.min_lr));
  return absl::OkStatus();
}

// The user's callbacks. The table stays in the registry for as long as the state.
void ReadHooks(lua_State* L, Session& session, TrainingSpec* t) {
  lua_getfield(L, 1, "hooks");
  if (lua_type(L, -1) != LUA_TTABLE) return;
  const int hooks = luaL_ref(L, LUA_REGISTRYINDEX);
  t->user_hook = [&session, hooks](Progress* progress) -> std::unique_ptr<UserHook> {
    lua_State* const running = session.lua();
    const StackGuard guard(running);
    lua_rawgeti(running, LUA_REGISTRYINDEX, hooks);
    auto hook = std::make_unique<LuaHook>(&session, progress, lua_gettop(running));
    if (hook->empty()) return nullptr;
    return hook;
  };
}

// The fields of the one optimizer's rate, or the list `rates`.
Status ReadRates(lua_State* L, Session& session, TrainingSpec* t) {
  const StackGuard guard(L);
  lua_getfield(L, 1, "rates");
  if (lua_isnil(L, -1)) return ReadRate(L, session, 1, &t->rates[0]);
  const int list = lua_gettop(L), n = lua_type(L, list) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, list)) : 0;
  if (n == 0) return absl::InvalidArgumentError("trainer: rates: expected a list");
  t->rates.assign(static_cast<size_t>(n), RateSpec());
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, list, i);
    const int at = lua_gettop(L);
    RETURN_IF_ERROR(CheckFields(L, at, "trainer: rates", {"input", "schedule", "lr_function"}));
    RateSpec& rate = t->rates[static_cast<size_t>(i) - 1];
    ASSIGN_OR_RETURN(rate.input, FieldString(L, at, "input", rate.input));
    RETURN_IF_ERROR(ReadRate(L, session, at, &rate));
    lua_pop(L, 1);
  }
  return absl::OkStatus();
}

// Says which samples ranks leave out of a dataset without batch. `what`: "train" or "eval".
void NoteUnbatched(const char* what, const DatasetHandle& dataset, const data::Pipeline& pipeline) {
  if (pipeline.batched() || pipeline.left_out() == 0) return;
  PrintNote(absl::StrCat(what, ": ", pipeline.left_out(), " of ", pipeline.left_out() + pipeline.size() * dataset.feeds,
                         " samples are left out: of a dataset without batch each of ", dataset.feeds,
                         " ranks gets as many; with batch all count"));
}

Status Read(lua_State* L, Session& session, TrainingSpec* t) {
  RETURN_IF_ERROR(CheckFields(
      L, 1, "trainer",
      {"graph",     "dataset",        "epochs",     "max_steps",  "parameters", "names",      "schedule", "lr_function",
       "history",   "loss_scale",     "sink",       "loss_every", "time_every", "time_steps", "rates",    "checkpoint",
       "eval",      "early_stopping", "plateau",    "hooks",      "name",       "seed",       "config",   "together",
       "broadcast", "metrics_limit",  "histograms", "companions", "check_loss"}));
  ASSIGN_OR_RETURN(t->graph, FieldGraph(L, 1, "trainer"));
  ASSIGN_OR_RETURN(const auto dataset, FieldDataset(L, 1, "trainer"));
  t->open = [&session, dataset]() -> StatusOr<TrainingData> {
    ASSIGN_OR_RETURN(auto pipeline, dataset->Open(session));
    if (session.state().rank == 0 && !std::exchange(dataset->noted, true)) NoteUnbatched("train", *dataset, *pipeline);
    return DataOf(*dataset, std::move(pipeline));
  };
  ASSIGN_OR_RETURN(t->options.epochs, FieldInt(L, 1, "epochs", 1));
  ASSIGN_OR_RETURN(t->options.max_steps, FieldInt(L, 1, "max_steps", 0));
  ASSIGN_OR_RETURN(t->options.check_loss, FieldBool(L, 1, "check_loss", true));
  ASSIGN_OR_RETURN(t->options.seed, FieldInt(L, 1, "seed", static_cast<int64_t>(session.state().seed)));
  ASSIGN_OR_RETURN(t->metrics_limit, FieldInt(L, 1, "metrics_limit", t->metrics_limit));
  ASSIGN_OR_RETURN(t->name, FieldString(L, 1, "name", "run"));
  ASSIGN_OR_RETURN(t->config, FieldString(L, 1, "config", ""));
  ASSIGN_OR_RETURN(t->recipe_hash, HashOfRecipe(L, session));
  ASSIGN_OR_RETURN(const bool several, FieldBool(L, 1, "together", false));
  t->together = several ? session.groups() : nullptr;
  ASSIGN_OR_RETURN(t->broadcast, FieldBool(L, 1, "broadcast", false));
  ASSIGN_OR_RETURN(t->time_every, FieldInt(L, 1, "time_every", 0));
  ASSIGN_OR_RETURN(t->time_steps, FieldInt(L, 1, "time_steps", 0));
  RETURN_IF_ERROR(ReadNetwork(L, t));
  RETURN_IF_ERROR(ReadRates(L, session, t));
  ASSIGN_OR_RETURN(t->history, FieldHistory(L, 1, "trainer"));
  t->options.before = *t->history;
  RETURN_IF_ERROR(ReadLogging(L, t));
  RETURN_IF_ERROR(ReadLossScale(L, t));
  lua_getfield(L, 1, "checkpoint");
  if (!lua_isnil(L, -1)) RETURN_IF_ERROR(ReadCheckpointSpec(L, lua_gettop(L), t));
  RETURN_IF_ERROR(ReadCompanions(L, t));
  RETURN_IF_ERROR(ReadHistograms(L, t));
  lua_getfield(L, 1, "eval");
  if (!lua_isnil(L, -1)) {
    RETURN_IF_ERROR(ReadEvalSpec(L, session, lua_gettop(L), &t->eval));
    t->has_eval = true;
  }
  ASSIGN_OR_RETURN(t->early_stopping, ReadWatch(L, "early_stopping"));
  RETURN_IF_ERROR(ReadPlateau(L, t));
  ReadHooks(L, session, t);
  return absl::OkStatus();
}

// The take or skip behind batch that leaves out batches of another size on other numbers of ranks; null: none does.
const data::Op* LeavesOutBatches(const DatasetHandle& dataset, const data::Pipeline& pipeline) {
  bool batched = false;
  for (const data::Op& op : dataset.description.ops()) {
    batched |= std::holds_alternative<data::BatchOp>(op);
    const auto* const take = std::get_if<data::TakeOp>(&op);
    const auto* const skip = std::get_if<data::SkipOp>(&op);
    if (batched &&
        ((take != nullptr && take->count < pipeline.size() * dataset.feeds) || (skip != nullptr && skip->count > 0)))
      return &op;
  }
  return nullptr;
}

// Says, once for a dataset, where an evaluation does not count every sample once.
void NoteWhatCounts(DatasetHandle& dataset, const data::Pipeline& pipeline) {
  if (std::exchange(dataset.noted, true)) return;
  const auto note = [](const std::string& text) { PrintNote(absl::StrCat("eval: ", text)); };
  const int64_t shards = dataset.description.sharding().num_shards, size = pipeline.source_size();
  if (shards > 0 && dataset.feeds > 1 && size % shards != 0) {
    note(absl::StrCat(shards - size % shards, " of ", size, " samples count twice, since num_shards = ", shards,
                      " makes parts of equal length: leave num_shards out, and the ranks share the samples"));
  }
  if (dataset.Repeated()) {
    note(absl::StrCat("each of ", dataset.feeds, " ranks runs the iterator whole: a sample counts ", dataset.feeds,
                      " times in sums and in confusion_matrix, unless the iterator looks at "
                      "ms.communication.get_rank(); function(i) with length is shared among the ranks"));
  }
  NoteUnbatched("eval", dataset, pipeline);
  if (pipeline.batched() && pipeline.left_out() > 0) {
    note(absl::StrCat("samples that fill no batch",
                      dataset.Divided() ? absl::StrCat(" of all ", dataset.feeds, " ranks") : "",
                      " are left out: ", pipeline.left_out(), " of ", size, "; with drop_remainder = false all count"));
  }
  const data::Op* const op = dataset.feeds > 1 ? LeavesOutBatches(dataset, pipeline) : nullptr;
  if (op != nullptr) {
    note(absl::StrCat(data::Name(*op), " behind batch counts batches of all ", dataset.feeds, " ranks, of ",
                      pipeline.rows() * dataset.feeds,
                      " samples: another number of ranks evaluates other samples; call ", data::Name(*op),
                      " before batch, where it counts samples"));
  }
}

}  // namespace

StatusOr<std::shared_ptr<TrainingSpec>> ReadTrainingSpec(lua_State* L, Session& session) {
  auto spec = std::make_shared<TrainingSpec>();
  RETURN_IF_ERROR(Read(L, session, spec.get()));
  return spec;
}

StatusOr<TrainingData> OpenEval(Session& session, DatasetHandle& dataset, bool whole) {
  const auto feeds = session.feeds, feed = session.feed;
  if (whole) session.feeds = 1, session.feed = 0;
  auto pipeline = dataset.Open(session);
  session.feeds = feeds;
  session.feed = feed;
  RETURN_IF_ERROR(pipeline.status());
  if (session.state().rank == 0) NoteWhatCounts(dataset, **pipeline);
  return DataOf(dataset, *std::move(pipeline));
}

void PushSums(lua_State* L, const std::vector<MetricSums>& sums) {
  lua_newtable(L);
  for (const MetricSums& m : sums) {
    lua_createtable(L, static_cast<int>(m.sums.size()), 0);
    for (size_t i = 0; i < m.sums.size(); ++i) {
      lua_pushnumber(L, m.sums[i]);
      lua_rawseti(L, -2, static_cast<int>(i) + 1);
    }
    lua_setfield(L, -2, m.name.c_str());
  }
}

}  // namespace mslua
