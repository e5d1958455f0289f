#include "lua/trainer_spec.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/input_file.h"
#include "core/train/agreement.h"
#include "lua/embedded.h"
#include "lua/optimizer_lua.h"
#include "lua/options.h"
#include "lua/schedule_lua.h"
#include "train/run_folder.h"

namespace mslua {

namespace {

constexpr int64_t kMaxRecipe = 16 << 20;  // bytes

// Empty: there is no such file.
std::string HashOfRecipe(const std::string& file) {
  if (const EmbeddedChunk* const chunk = FindRecipe(file)) return Blake2bHex(chunk->source).substr(0, 16);
  const auto source = ReadFile(file, kMaxRecipe);
  return source.ok() ? Blake2bHex(*source).substr(0, 16) : "";
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

Status ReadCheckpointSpec(lua_State* L, int index, TrainerSpec* t) {
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
Status ReadNetwork(lua_State* L, TrainerSpec* t) {
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

Status ReadEvalSpec(lua_State* L, Session& session, int index, EvalSpec* eval) {
  eval->finish = Callback::Field(session, index, "finish");
  ASSIGN_OR_RETURN(eval->matrices, ReadTexts(L, index, "matrices"));
  ASSIGN_OR_RETURN(eval->labels, ReadTexts(L, index, "labels"));
  ASSIGN_OR_RETURN(eval->graph, FieldGraph(L, index, "eval"));
  ASSIGN_OR_RETURN(eval->dataset, FieldDataset(L, index, "eval"));
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
  return absl::OkStatus();
}

// The field `name` of the table at 1; none where it is nil.
StatusOr<absl::optional<TrainerSpec::Watch>> ReadWatch(lua_State* L, const char* name) {
  const StackGuard guard(L);
  lua_getfield(L, 1, name);
  if (lua_isnil(L, -1)) return absl::optional<TrainerSpec::Watch>();
  const int at = lua_gettop(L);
  TrainerSpec::Watch watch;
  ASSIGN_OR_RETURN(watch.monitor, FieldString(L, at, "monitor", "eval_loss"));
  ASSIGN_OR_RETURN(watch.mode, FieldString(L, at, "mode", "min"));
  ASSIGN_OR_RETURN(watch.min_delta, FieldNumber(L, at, "min_delta", 0));
  ASSIGN_OR_RETURN(watch.patience, FieldInt(L, at, "patience", 0));
  return absl::make_optional(std::move(watch));
}

}  // namespace

Status TrainerSpec::Read(lua_State* L, Session& session) {
  RETURN_IF_ERROR(CheckFields(
      L, 1, "trainer",
      {"graph",       "dataset",  "epochs",         "max_steps",    "parameters", "names",      "schedule",
       "lr_function", "history",  "loss_scale",     "sink",         "loss_every", "time_every", "time_steps",
       "checkpoint",  "eval",     "early_stopping", "plateau",      "hooks",      "name",       "seed",
       "config",      "together", "broadcast",      "metrics_limit"}));
  ASSIGN_OR_RETURN(graph, FieldGraph(L, 1, "trainer"));
  ASSIGN_OR_RETURN(dataset, FieldDataset(L, 1, "trainer"));
  ASSIGN_OR_RETURN(options.epochs, FieldInt(L, 1, "epochs", 1));
  ASSIGN_OR_RETURN(options.max_steps, FieldInt(L, 1, "max_steps", 0));
  ASSIGN_OR_RETURN(options.seed, FieldInt(L, 1, "seed", static_cast<int64_t>(session.state().seed)));
  ASSIGN_OR_RETURN(metrics_limit, FieldInt(L, 1, "metrics_limit", metrics_limit));
  ASSIGN_OR_RETURN(name, FieldString(L, 1, "name", "run"));
  ASSIGN_OR_RETURN(config, FieldString(L, 1, "config", ""));
  recipe_hash = HashOfRecipe(session.options().file);
  ASSIGN_OR_RETURN(const bool several, FieldBool(L, 1, "together", false));
  together = several ? session.groups() : nullptr;
  ASSIGN_OR_RETURN(broadcast, FieldBool(L, 1, "broadcast", false));
  ASSIGN_OR_RETURN(time_every, FieldInt(L, 1, "time_every", 0));
  ASSIGN_OR_RETURN(time_steps, FieldInt(L, 1, "time_steps", 0));
  RETURN_IF_ERROR(ReadNetwork(L, this));
  lr_function = Callback::Field(session, 1, "lr_function");
  ASSIGN_OR_RETURN(history, FieldHistory(L, 1, "trainer"));
  options.before = *history;
  lua_getfield(L, 1, "schedule");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(schedule, ReadSchedule(L, -1));
  } else if (!lr_function.ok()) {
    return absl::InvalidArgumentError("trainer: a schedule or an lr_function is needed");
  }
  lua_getfield(L, 1, "loss_every");
  if (lua_type(L, -1) == LUA_TSTRING) {
    log_epochs = true;
  } else if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(log_every, ReadInt(L, -1, "loss_every"));
  }
  lua_getfield(L, 1, "loss_scale");
  if (!lua_isnil(L, -1)) {
    const int at = lua_gettop(L);
    RETURN_IF_ERROR(CheckFields(L, at, "loss_scale", {"kind", "value", "factor", "window"}));
    ASSIGN_OR_RETURN(loss_scale_kind, FieldString(L, at, "kind", "fixed"));
    ASSIGN_OR_RETURN(loss_scale, FieldNumber(L, at, "value", 1));
    ASSIGN_OR_RETURN(loss_scale_factor, FieldNumber(L, at, "factor", 2));
    ASSIGN_OR_RETURN(loss_scale_window, FieldInt(L, at, "window", 1000));
  }
  lua_getfield(L, 1, "checkpoint");
  if (!lua_isnil(L, -1)) RETURN_IF_ERROR(ReadCheckpointSpec(L, lua_gettop(L), this));
  lua_getfield(L, 1, "eval");
  if (!lua_isnil(L, -1)) {
    RETURN_IF_ERROR(ReadEvalSpec(L, session, lua_gettop(L), &eval));
    has_eval = true;
  }
  ASSIGN_OR_RETURN(early_stopping, ReadWatch(L, "early_stopping"));
  ASSIGN_OR_RETURN(plateau, ReadWatch(L, "plateau"));
  if (plateau) {
    lua_getfield(L, 1, "plateau");
    const int at = lua_gettop(L);
    plateau_options.patience = plateau->patience;
    ASSIGN_OR_RETURN(plateau_options.factor, FieldNumber(L, at, "factor", plateau_options.factor));
    ASSIGN_OR_RETURN(plateau_options.cooldown, FieldInt(L, at, "cooldown", plateau_options.cooldown));
    ASSIGN_OR_RETURN(plateau_options.min_lr, FieldNumber(L, at, "min_lr", plateau_options.min_lr));
  }
  lua_getfield(L, 1, "hooks");
  if (lua_type(L, -1) == LUA_TTABLE) hooks = luaL_ref(L, LUA_REGISTRYINDEX);
  return absl::OkStatus();
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

StatusOr<std::string> TrainerSpec::RunFolder(Session& session, const std::string& resume, bool* made) const {
  if (together == nullptr) return OwnRunFolder(session, resume, made);
  std::string folder;
  if (together->rank() == 0) {
    auto own = OwnRunFolder(session, resume, made);
    // The others wait for the folder: they are told by the group that there is none.
    if (!own.ok()) together->world().Abort(own.status());
    RETURN_IF_ERROR(own.status());
    folder = *std::move(own);
  }
  RETURN_IF_ERROR(ShareText(*together, &folder, "the run folder"));
  return folder;
}

StatusOr<std::string> TrainerSpec::OwnRunFolder(Session& session, const std::string& resume, bool* made) const {
  lua_State* L = session.lua();
  const std::string& verb = session.options().verb;
  if (OptionInt(L, "fast_dev_run") > 0 || verb == "verify" || verb == "prof" || verb == "lr-find") return std::string();
  std::string out = OptionString(L, "out");
  if (!out.empty()) {
    // Ranks that train each by itself write into folders of their own.
    if (together == nullptr && session.state().ranks > 1) absl::StrAppend(&out, "/rank_", session.state().rank);
    struct stat info;
    *made = stat(out.c_str(), &info) != 0;
    RETURN_IF_ERROR(MakeFolders(out));
    return out;
  }
  if (resume == "last" || resume == "best") {
    if (checkpoint_directory.empty()) return LastRunFolder(name, resume == "best" ? kRunBest : kRunCheckpoints);
    // The recipe keeps its checkpoints elsewhere: the run need not have any in its folder.
    const auto last = LastRunFolder(name, kRunMetrics);
    if (last.ok()) return *last;
  }
  *made = true;
  return NewRunFolder(name);
}

}  // namespace mslua
