// core.trainer, core.evaluate and core.stepper: the C++ step loop (core/train) over a graph of Lua's.
#include "lua/trainer_lua.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/train/checkpoint_hook.h"
#include "core/train/evaluator.h"
#include "core/train/metrics.h"
#include "core/train/trainer.h"
#include "lua/dataset_lua.h"
#include "lua/graph_lua.h"
#include "lua/run_folder.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

using Numbers = std::vector<std::pair<std::string, double>>;

// ------------------------------------------------------------------------------- reading the description

StatusOr<std::shared_ptr<TracedGraph>> FieldGraph(lua_State* L, int index, const std::string& what) {
  const StackGuard guard(L);
  lua_getfield(L, index, "graph");
  const auto* g = ToObject<std::shared_ptr<TracedGraph>>(L, -1);
  if (g == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(what, ": graph: expected a Graph, got ", Describe(L, -1)));
  return *g;
}

StatusOr<std::shared_ptr<DatasetHandle>> FieldDataset(lua_State* L, int index, const std::string& what) {
  const StackGuard guard(L);
  lua_getfield(L, index, "dataset");
  const auto* d = ToObject<std::shared_ptr<DatasetHandle>>(L, -1);
  if (d == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(what, ": dataset: expected a Dataset, got ", Describe(L, -1)));
  return *d;
}

StatusOr<std::vector<double>> FieldNumbers(lua_State* L, int index, const char* name) {
  const StackGuard guard(L);
  std::vector<double> out;
  lua_getfield(L, index, name);
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(const double v, ReadNumber(L, -1, absl::StrCat(name, "[", i, "]")));
    out.push_back(v);
    lua_pop(L, 1);
  }
  return out;
}

// The learning rate's schedule; its fields have the names of core/train/schedule.h.
StatusOr<Schedule> ReadSchedule(lua_State* L, int index) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  if (lua_type(L, index) == LUA_TNUMBER) return Schedule::Constant(lua_tonumber(L, index));
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("schedule: expected a table, got ", Describe(L, index)));
  Schedule s;
  ASSIGN_OR_RETURN(const std::string kind, FieldString(L, index, "kind", "constant"));
  ASSIGN_OR_RETURN(s.kind, ParseScheduleKind(kind));
  for (const auto& [name, field] : {std::make_pair("value", &s.value),
                                    {"low", &s.low},
                                    {"rate", &s.rate},
                                    {"power", &s.power},
                                    {"pct", &s.pct},
                                    {"div", &s.div},
                                    {"final_div", &s.final_div},
                                    {"warmup_from", &s.warmup_from}}) {
    ASSIGN_OR_RETURN(*field, FieldNumber(L, index, name, *field));
  }
  for (const auto& [name, field] :
       {std::make_pair("period", &s.period), {"total", &s.total}, {"warmup_steps", &s.warmup_steps}}) {
    ASSIGN_OR_RETURN(*field, FieldInt(L, index, name, *field));
  }
  ASSIGN_OR_RETURN(s.rates, FieldNumbers(L, index, "rates"));
  ASSIGN_OR_RETURN(const std::vector<double> milestones, FieldNumbers(L, index, "milestones"));
  for (double m : milestones) s.milestones.push_back(static_cast<int64_t>(m));
  RETURN_IF_ERROR(s.Check());
  return s;
}

// A function in the registry; ok() when there is one.
class Callback {
 public:
  Callback() = default;
  // The field of the table at `index`, if it is a function.
  static Callback Field(Session& session, int index, const char* name) {
    lua_State* L = session.lua();
    Callback c;
    lua_getfield(L, index, name);
    if (lua_type(L, -1) != LUA_TFUNCTION) {
      lua_pop(L, 1);
      return c;
    }
    const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    c.ref_ = std::shared_ptr<const int>(new int(ref), [&session](const int* r) {
      luaL_unref(session.lua(), LUA_REGISTRYINDEX, *r);
      delete r;
    });
    return c;
  }
  bool ok() const { return ref_ != nullptr; }
  void Push(lua_State* L) const { lua_rawgeti(L, LUA_REGISTRYINDEX, *ref_); }

 private:
  std::shared_ptr<const int> ref_;
};

// core.options.NAME as a string ("" when absent) or number.
std::string OptionString(lua_State* L, const char* name) {
  const StackGuard guard(L);
  lua_getfield(L, LUA_REGISTRYINDEX, kOptionsKey);
  lua_getfield(L, -1, name);
  return lua_isstring(L, -1) ? lua_tostring(L, -1) : "";
}
int OptionInt(lua_State* L, const char* name) {
  const StackGuard guard(L);
  lua_getfield(L, LUA_REGISTRYINDEX, kOptionsKey);
  lua_getfield(L, -1, name);
  return static_cast<int>(lua_tonumber(L, -1));
}

StatusOr<std::unique_ptr<Executable>> CompileGraph(Session& session, const TracedGraph& graph) {
  for (const auto& p : graph.parameters) RETURN_IF_ERROR(ValueOf(session, *p).status());
  CompileOptions options;
  options.rank = session.options().rank;
  options.save_graphs = OptionInt(session.lua(), "save_graphs");
  const std::string path = OptionString(session.lua(), "save_graphs_path");
  if (!path.empty()) options.save_graphs_path = path;
  return CompileShared(session, graph.graph, options);
}

struct MetricInfo {
  std::string name, kind;  // "mean", "percent", "perplexity"
};

double Shown(const MetricInfo& m, double value) { return m.kind == "perplexity" ? std::exp(value) : value; }

// -------------------------------------------------------------------------------------------------- hooks

// Everything of one training; LuaTrainer::Run puts the parts together.
struct Run {
  Session* session;
  Trainer* trainer = nullptr;
  Console* console = nullptr;
  MetricsHook* metrics = nullptr;
  int64_t epochs = 1, steps_per_epoch = 1;
  Numbers found;         // "loss" of the last epoch, "eval_loss", ...
  bool stopped = false;  // by a callback: training is then done, not broken off

  void Set(const std::string& name, double value) {
    for (auto& f : found) {
      if (f.first == name) {
        f.second = value;
        return;
      }
    }
    found.emplace_back(name, value);
  }
  const double* Find(const std::string& name) const {
    for (const auto& f : found) {
      if (f.first == name) return &f.second;
    }
    return nullptr;
  }
  void Stop() {
    stopped = true;
    trainer->RequestStop();
  }
};

// The mean loss of each epoch, and its time.
class EpochHook : public TrainHook {
 public:
  EpochHook(Run* run, int64_t time_every, int64_t time_steps)
      : run_(run), time_every_(time_every), time_steps_(time_steps) {}
  int64_t NextStep(const TrainState& s) override { return counted_ == s.step ? s.step + 1 : s.step; }
  Status AtStep(const TrainState& s) override {
    if (s.step == 0 || counted_ == s.step) return absl::OkStatus();
    counted_ = s.step;
    sum_ += s.loss;
    ++steps_;
    run_->Set("loss", sum_ / static_cast<double>(steps_));
    return absl::OkStatus();
  }
  Status AtEpochBegin(const TrainState&) override {
    sum_ = 0;
    steps_ = 0;
    begun_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }
  Status AtEpochEnd(const TrainState& s) override {
    if (time_every_ == 0 || s.epoch % time_every_ != 0) return absl::OkStatus();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun_).count();
    const auto steps = static_cast<double>(std::max<int64_t>(1, time_steps_ > 0 ? time_steps_ : steps_));
    run_->console->Line(absl::StrFormat("epoch time: %.3f ms, per step time: %.3f ms", ms, ms / steps));
    return absl::OkStatus();
  }

 private:
  Run* const run_;
  const int64_t time_every_, time_steps_;
  int64_t counted_ = 0, steps_ = 0;
  double sum_ = 0;
  std::chrono::steady_clock::time_point begun_;
};

class EvalHook : public TrainHook {
 public:
  EvalHook(Run* run, Evaluator* evaluator, std::vector<MetricInfo> metrics, int64_t every_epochs, int64_t every_steps)
      : run_(run),
        evaluator_(evaluator),
        metrics_(std::move(metrics)),
        every_epochs_(every_epochs),
        every_steps_(every_steps) {}
  int64_t NextStep(const TrainState& s) override {
    if (every_steps_ == 0) return INT64_MAX;
    return done_ == s.step ? (s.step / every_steps_ + 1) * every_steps_
                           : (s.step + every_steps_ - 1) / every_steps_ * every_steps_;
  }
  Status AtStep(const TrainState& s) override { return s.step == 0 ? absl::OkStatus() : Evaluate(s, s.epoch + 1); }
  Status AtEpochEnd(const TrainState& s) override {
    return every_epochs_ > 0 && s.epoch % every_epochs_ == 0 ? Evaluate(s, s.epoch) : absl::OkStatus();
  }

 private:
  Status Evaluate(const TrainState& s, int64_t epoch) {
    if (done_ == s.step) return absl::OkStatus();
    done_ = s.step;
    ASSIGN_OR_RETURN(const Numbers values, evaluator_->Run());
    std::string line = absl::StrCat("eval: epoch ", epoch);
    Numbers record;
    for (size_t i = 0; i < values.size(); ++i) {
      const MetricInfo info = i < metrics_.size() ? metrics_[i] : MetricInfo{values[i].first, "mean"};
      const double v = Shown(info, values[i].second);
      if (info.kind == "percent")
        absl::StrAppendFormat(&line, ", %s %.1f%%", info.name, 100 * v);
      else
        absl::StrAppendFormat(&line, ", %s %.4g", info.name, v);
      record.emplace_back(absl::StrCat("eval_", info.name), v);
      run_->Set(record.back().first, v);
    }
    run_->console->Line(line);
    if (run_->metrics != nullptr) run_->metrics->Write(s, record);
    return absl::OkStatus();
  }

  Run* const run_;
  Evaluator* const evaluator_;
  const std::vector<MetricInfo> metrics_;
  const int64_t every_epochs_, every_steps_;
  int64_t done_ = 0;
};

class EarlyStoppingHook : public TrainHook {
 public:
  EarlyStoppingHook(Run* run, std::string monitor, double min_delta, int64_t patience, bool smaller)
      : run_(run), monitor_(std::move(monitor)), min_delta_(min_delta), patience_(patience), sign_(smaller ? 1 : -1) {}
  Status AtEpochEnd(const TrainState& s) override {
    const double* v = run_->Find(monitor_);
    if (v == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("EarlyStopping: nothing called '", monitor_, "' was measured"));
    if (s.epoch == 1 || sign_ * *v < best_ - min_delta_) {
      best_ = sign_ * *v;
      worse_ = 0;
      return absl::OkStatus();
    }
    if (++worse_ > patience_) {
      run_->console->Line(
          absl::StrCat("early stopping: epoch ", s.epoch, ", ", monitor_, " has not improved for ", worse_, " epochs"));
      run_->Stop();
    }
    return absl::OkStatus();
  }

 private:
  Run* const run_;
  const std::string monitor_;
  const double min_delta_;
  const int64_t patience_;
  const double sign_;
  double best_ = HUGE_VAL;
  int64_t worse_ = 0;
};

// Halves the scale after a step with infinite gradients, and raises it after `window` good ones (MindSpore's
// DynamicLossScaleManager).
class LossScaleHook : public TrainHook {
 public:
  LossScaleHook(const Executable* executable, int finite, double value, double factor, int64_t window, bool dynamic)
      : executable_(executable), finite_(finite), scale_(value), factor_(factor), window_(window), dynamic_(dynamic) {}
  double scale() const { return scale_; }
  int64_t NextStep(const TrainState& s) override {
    return dynamic_ ? (seen_ == s.step ? s.step + 1 : s.step) : INT64_MAX;
  }
  Status AtStep(const TrainState& s) override {
    if (s.step == 0 || seen_ == s.step) return absl::OkStatus();
    seen_ = s.step;
    if (*executable_->Output(finite_).as<float>() < 0.5f) {
      scale_ = std::max(1.0, scale_ / factor_);
      good_ = 0;
    } else if (++good_ >= window_) {
      scale_ *= factor_;
      good_ = 0;
    }
    return absl::OkStatus();
  }

 private:
  const Executable* const executable_;
  const int finite_;
  double scale_;
  const double factor_;
  const int64_t window_;
  const bool dynamic_;
  int64_t good_ = 0, seen_ = 0;
};

// Lua's callbacks at their safe points.
class LuaHook : public TrainHook {
 public:
  LuaHook(Run* run, int hooks) : run_(run) {
    for (const char* name : {"begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "finish"}) {
      Callback c = Callback::Field(*run->session, hooks, name);
      if (c.ok()) callbacks_[name] = c;
    }
  }
  bool empty() const { return callbacks_.empty(); }
  // A session-level error that AtEnd met, which the loop cannot return.
  const Status& late() const { return late_; }

  int64_t NextStep(const TrainState& s) override {
    if (!Has("step_begin") && !Has("step_end")) return INT64_MAX;
    return seen_ == s.step ? s.step + 1 : s.step;
  }
  Status AtStep(const TrainState& s) override {
    if (s.step == 0 || seen_ == s.step) return absl::OkStatus();
    seen_ = s.step;
    RETURN_IF_ERROR(Fire("step_end", s, s.epoch + 1, s.step_in_epoch));
    if (s.step_in_epoch == run_->steps_per_epoch) return absl::OkStatus();
    return Fire("step_begin", s, s.epoch + 1, s.step_in_epoch + 1);
  }
  Status AtEpochBegin(const TrainState& s) override {
    RETURN_IF_ERROR(Fire("epoch_begin", s, s.epoch + 1, 0));
    return Fire("step_begin", s, s.epoch + 1, s.step_in_epoch + 1);
  }
  Status AtEpochEnd(const TrainState& s) override { return Fire("epoch_end", s, s.epoch, run_->steps_per_epoch); }
  Status AtBegin(const TrainState& s) override { return Fire("begin", s, s.epoch + 1, 0); }
  void AtEnd(const TrainState& s, const Status&) override {
    late_ = Fire("finish", s, std::max<int64_t>(1, s.epoch), s.step_in_epoch);
  }

 private:
  bool Has(const char* name) const { return callbacks_.count(name) > 0; }

  static int StopFromLua(lua_State* L) {
    static_cast<Run*>(lua_touserdata(L, lua_upvalueindex(1)))->Stop();
    return 0;
  }

  Status Fire(const char* name, const TrainState& s, int64_t epoch, int64_t step) {
    const auto found = callbacks_.find(name);
    if (found == callbacks_.end()) return absl::OkStatus();
    run_->console->Flush();
    lua_State* L = run_->session->lua();
    const StackGuard guard(L);
    found->second.Push(L);
    lua_newtable(L);
    const auto set = [L](const char* key, double v) {
      lua_pushnumber(L, v);
      lua_setfield(L, -2, key);
    };
    set("epoch", static_cast<double>(epoch));
    set("step", static_cast<double>(step));
    set("global_step", static_cast<double>(s.step));
    set("epochs", static_cast<double>(run_->epochs));
    set("steps_per_epoch", static_cast<double>(run_->steps_per_epoch));
    if (s.step > 0) set("loss", s.loss);
    const double lr = run_->trainer->ScalarNow(0);
    if (!std::isnan(lr)) set("lr", lr);
    lua_newtable(L);
    for (const auto& f : run_->found) set(f.first.c_str(), f.second);
    lua_setfield(L, -2, "metrics");
    lua_pushlightuserdata(L, run_);
    lua_pushcclosure(L, StopFromLua, 1);
    lua_setfield(L, -2, "stop");
    return run_->session->Call(1, 0);
  }

  Run* const run_;
  std::map<std::string, Callback> callbacks_;
  int64_t seen_ = 0;
  Status late_;
};

// ----------------------------------------------------------------------------------------------- the trainer

// The trainer that a signal stops: handlers reach nothing but statics.
std::atomic<Trainer*> interrupted_trainer{nullptr};
void OnSignal(int signal) {
  if (Trainer* t = interrupted_trainer.exchange(nullptr))
    t->RequestStop();
  else
    std::signal(signal, SIG_DFL), std::raise(signal);
}

// Stops `trainer` at the next boundary on SIGINT or SIGTERM; a second signal ends the process.
class SignalScope {
 public:
  explicit SignalScope(Trainer* trainer) {
    interrupted_trainer = trainer;
    old_int_ = std::signal(SIGINT, OnSignal);
    old_term_ = std::signal(SIGTERM, OnSignal);
  }
  ~SignalScope() {
    interrupted_trainer = nullptr;
    std::signal(SIGINT, old_int_);
    std::signal(SIGTERM, old_term_);
  }

 private:
  void (*old_int_)(int);
  void (*old_term_)(int);
};

struct EvalSpec {
  std::shared_ptr<TracedGraph> graph;
  std::shared_ptr<DatasetHandle> dataset;
  std::vector<MetricInfo> metrics;
  int64_t every_epochs = 1, every_steps = 0;
};

struct LuaTrainer {
  std::shared_ptr<TracedGraph> graph;
  std::shared_ptr<DatasetHandle> dataset;
  TrainerOptions options;
  Schedule schedule;
  Callback lr_function;
  std::string loss_scale_kind;  // "", "fixed", "dynamic"
  double loss_scale = 1, loss_scale_factor = 2;
  int64_t loss_scale_window = 1000;
  int64_t log_every = 0;
  bool log_epochs = false;
  int64_t time_every = 0, time_steps = 0;
  bool has_checkpoint = false, has_early_stopping = false, has_eval = false;
  CheckpointOptions checkpoint;
  std::string checkpoint_directory;
  EvalSpec eval;
  std::string monitor, mode;
  double min_delta = 0;
  int64_t patience = 0;
  std::string name, config;
  int hooks = LUA_NOREF;  // the table of Lua's hooks
  Run run;

  Status Read(lua_State* L, Session& session);
  StatusOr<double> Train(Session& session);
  StatusOr<std::string> RunFolder(Session& session, const std::string& resume) const;
};

Status ReadCheckpointSpec(lua_State* L, int index, LuaTrainer* t) {
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
  ASSIGN_OR_RETURN(t->checkpoint.async_save, FieldBool(L, index, "async", true));
  ASSIGN_OR_RETURN(const bool exception_save, FieldBool(L, index, "exception_save", false));
  if (exception_save)
    return absl::UnimplementedError("CheckpointConfig: exception_save is not built yet; leave it out");
  t->has_checkpoint = true;
  return absl::OkStatus();
}

Status ReadEvalSpec(lua_State* L, int index, EvalSpec* eval) {
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

Status LuaTrainer::Read(lua_State* L, Session& session) {
  RETURN_IF_ERROR(CheckFields(L, 1, "trainer",
                              {"graph", "dataset", "epochs", "max_steps", "parameters", "schedule", "lr_function",
                               "loss_scale", "sink", "loss_every", "time_every", "time_steps", "checkpoint", "eval",
                               "early_stopping", "hooks", "name", "seed", "config"}));
  ASSIGN_OR_RETURN(graph, FieldGraph(L, 1, "trainer"));
  ASSIGN_OR_RETURN(dataset, FieldDataset(L, 1, "trainer"));
  ASSIGN_OR_RETURN(options.epochs, FieldInt(L, 1, "epochs", 1));
  ASSIGN_OR_RETURN(options.max_steps, FieldInt(L, 1, "max_steps", 0));
  ASSIGN_OR_RETURN(options.seed, FieldInt(L, 1, "seed", static_cast<int64_t>(session.seed)));
  ASSIGN_OR_RETURN(name, FieldString(L, 1, "name", "run"));
  ASSIGN_OR_RETURN(config, FieldString(L, 1, "config", ""));
  ASSIGN_OR_RETURN(time_every, FieldInt(L, 1, "time_every", 0));
  ASSIGN_OR_RETURN(time_steps, FieldInt(L, 1, "time_steps", 0));
  lr_function = Callback::Field(session, 1, "lr_function");
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
    RETURN_IF_ERROR(ReadEvalSpec(L, lua_gettop(L), &eval));
    has_eval = true;
  }
  lua_getfield(L, 1, "early_stopping");
  if (!lua_isnil(L, -1)) {
    const int at = lua_gettop(L);
    has_early_stopping = true;
    ASSIGN_OR_RETURN(monitor, FieldString(L, at, "monitor", "eval_loss"));
    ASSIGN_OR_RETURN(mode, FieldString(L, at, "mode", "min"));
    ASSIGN_OR_RETURN(min_delta, FieldNumber(L, at, "min_delta", 0));
    ASSIGN_OR_RETURN(patience, FieldInt(L, at, "patience", 0));
  }
  lua_getfield(L, 1, "hooks");
  if (lua_type(L, -1) == LUA_TTABLE) hooks = luaL_ref(L, LUA_REGISTRYINDEX);
  return absl::OkStatus();
}

// Where this run's files go; empty where nothing is saved.
StatusOr<std::string> LuaTrainer::RunFolder(Session& session, const std::string& resume) const {
  lua_State* L = session.lua();
  if (OptionInt(L, "fast_dev_run") > 0 || session.options().verb == "verify") return std::string();
  const std::string out = OptionString(L, "out");
  if (!out.empty()) {
    RETURN_IF_ERROR(MakeFolder(out));
    return out;
  }
  if (resume == "last") return LastRunFolder(name);
  return NewRunFolder(name);
}

StatusOr<double> LuaTrainer::Train(Session& session) {
  lua_State* L = session.lua();
  run = Run();
  run.session = &session;
  ASSIGN_OR_RETURN(const auto pipeline, dataset->Open(session));
  data::Loader loader(pipeline, data::LoaderOptions());
  run.epochs = options.epochs;
  run.steps_per_epoch = pipeline->size();
  if (run.steps_per_epoch == 0) return absl::InvalidArgumentError("train: the dataset has no whole batch");
  ASSIGN_OR_RETURN(const auto executable, CompileGraph(session, *graph));

  const std::string resume = OptionString(L, "resume");
  ASSIGN_OR_RETURN(const std::string folder, RunFolder(session, resume));
  Console::Options console_options;
  console_options.log_every = log_every;
  console_options.log_epochs = log_epochs;
  if (!folder.empty()) console_options.log_path = absl::StrCat(folder, "/rank_", session.options().rank, ".log");
  Console console(console_options);
  run.console = &console;

  std::unique_ptr<LossScaleHook> loss_scale_hook;
  std::vector<ScheduledScalar> scalars(1);
  scalars[0].input = "lr";
  scalars[0].schedule = schedule;
  if (lr_function.ok()) {
    scalars[0].user = [&](int64_t step) -> StatusOr<double> {
      const StackGuard guard(L);
      lr_function.Push(L);
      lua_pushnumber(L, static_cast<double>(step + 1));
      lua_pushnumber(L, static_cast<double>(step / run.steps_per_epoch + 1));
      RETURN_IF_ERROR(session.Call(2, 1));
      return ReadNumber(L, -1, "the learning rate's function should return a number");
    };
  }
  if (!loss_scale_kind.empty()) {
    int finite = -1;
    for (size_t i = 0; i < graph->graph.outputs.size(); ++i) {
      if (graph->graph.outputs[i].name == "finite") finite = static_cast<int>(i);
    }
    if (finite < 0) return absl::InvalidArgumentError("trainer: loss_scale needs a graph built with loss_scale = true");
    loss_scale_hook = std::make_unique<LossScaleHook>(executable.get(), finite, loss_scale, loss_scale_factor,
                                                      loss_scale_window, loss_scale_kind == "dynamic");
    scalars.emplace_back();
    scalars.back().input = "loss_scale";
    scalars.back().user = [&](int64_t) -> StatusOr<double> { return loss_scale_hook->scale(); };
  }
  ASSIGN_OR_RETURN(const auto trainer,
                   Trainer::Create(executable.get(), &loader, std::move(scalars), options, &console));
  run.trainer = trainer.get();

  std::string resumed_from;
  if (!resume.empty()) {
    if (resume == "best") return absl::UnimplementedError("--resume=best is not built yet; give the checkpoint's path");
    std::string from = resume;
    if (resume == "last") {
      from = !checkpoint_directory.empty() ? checkpoint_directory : absl::StrCat(folder, "/ckpt");
    }
    session.exit_code = kExitStorage;  // until it is read
    ASSIGN_OR_RETURN(const auto ckpt, checkpoint::LoadCheckpoint(from));
    std::string ignored;
    ASSIGN_OR_RETURN(const TrainState state, RestoreCheckpoint(*ckpt, session.store(), &ignored));
    if (!ckpt->note().empty()) std::fprintf(stderr, "mslua: note: %s\n", ckpt->note().c_str());
    if (!ignored.empty())
      std::fprintf(stderr, "mslua: note: %s has tensors that this run does not: %s\n", ckpt->path().c_str(),
                   ignored.c_str());
    session.exit_code = 0;
    RETURN_IF_ERROR(trainer->Restore(state));
    resumed_from = ckpt->path();
    std::fprintf(stderr, "mslua: goes on from %s, step %lld\n", resumed_from.c_str(),
                 static_cast<long long>(state.step));
  }

  EpochHook epoch_hook(&run, time_every, time_steps);
  trainer->AddHook(&epoch_hook);
  if (loss_scale_hook != nullptr) trainer->AddHook(loss_scale_hook.get());

  std::unique_ptr<MetricsHook> metrics_hook;
  if (!folder.empty()) {
    ASSIGN_OR_RETURN(metrics_hook,
                     MetricsHook::Create(folder, std::max<int64_t>(1, run.steps_per_epoch / 100), trainer.get()));
    run.metrics = metrics_hook.get();
    if (!config.empty()) RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/config.lua"), config));
  }
  std::unique_ptr<Executable> eval_executable;
  std::unique_ptr<data::Loader> eval_loader;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<EvalHook> eval_hook;
  if (has_eval) {
    ASSIGN_OR_RETURN(const auto eval_pipeline, eval.dataset->Open(session));
    eval_loader = std::make_unique<data::Loader>(eval_pipeline, data::LoaderOptions());
    ASSIGN_OR_RETURN(eval_executable, CompileGraph(session, *eval.graph));
    ASSIGN_OR_RETURN(evaluator, Evaluator::Create(eval_executable.get(), eval_loader.get()));
    eval_hook = std::make_unique<EvalHook>(&run, evaluator.get(), eval.metrics, eval.every_epochs, eval.every_steps);
    trainer->AddHook(eval_hook.get());
  }
  if (metrics_hook != nullptr) trainer->AddHook(metrics_hook.get());
  std::unique_ptr<CheckpointHook> checkpoint_hook;
  if (has_checkpoint && !(folder.empty() && checkpoint_directory.empty())) {
    checkpoint.keeper.directory = checkpoint_directory.empty() ? absl::StrCat(folder, "/ckpt") : checkpoint_directory;
    RETURN_IF_ERROR(MakeFolder(checkpoint.keeper.directory));
    checkpoint.job = name;
    checkpoint.seed = options.seed;
    checkpoint.graph_hash = absl::StrFormat("%016x", Fingerprint(graph->graph));
    checkpoint.resumed_from = resumed_from;
    ASSIGN_OR_RETURN(checkpoint_hook, CheckpointHook::Create(checkpoint, &session.store(), [](const std::string& text) {
                       std::fprintf(stderr, "mslua: note: %s\n", text.c_str());
                     }));
    trainer->AddHook(checkpoint_hook.get());
  }
  std::unique_ptr<EarlyStoppingHook> stopping_hook;
  if (has_early_stopping) {
    stopping_hook = std::make_unique<EarlyStoppingHook>(&run, monitor, min_delta, patience, mode == "min");
    trainer->AddHook(stopping_hook.get());
  }
  std::unique_ptr<LuaHook> lua_hook;
  if (hooks != LUA_NOREF) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, hooks);
    lua_hook = std::make_unique<LuaHook>(&run, lua_gettop(L));
    lua_pop(L, 1);
    if (!lua_hook->empty()) trainer->AddHook(lua_hook.get());
  }
  const PlanReport& plan = executable->report();
  std::fprintf(stderr, "mslua: %s: %lld nodes in %lld kernels, %.1f MiB of activations, compiled in %.2f s%s%s\n",
               name.c_str(), static_cast<long long>(plan.nodes), static_cast<long long>(plan.kernels),
               static_cast<double>(plan.workspace_bytes) / (1 << 20), plan.compile_seconds,
               folder.empty() ? "" : "; run folder ", folder.c_str());

  Status outcome;
  {
    const SignalScope signals(trainer.get());
    outcome = trainer->Run();
  }
  run.trainer = nullptr;
  run.console = nullptr;
  run.metrics = nullptr;
  if (outcome.ok() && lua_hook != nullptr) outcome = lua_hook->late();
  if (absl::IsCancelled(outcome) && run.stopped) outcome = absl::OkStatus();
  if (absl::IsOutOfRange(outcome)) session.exit_code = kExitDiverged;
  if (absl::IsCancelled(outcome)) {
    const bool saved = checkpoint_hook != nullptr && !checkpoint_hook->last_path().empty();
    session.exit_code = saved ? kExitCheckpointed : kExitInterrupted;
    return absl::CancelledError(absl::StrCat(
        "stopped at step ", trainer->state().step,
        saved ? absl::StrCat("; saved ", checkpoint_hook->last_path(), ", --resume goes on from it") : ""));
  }
  RETURN_IF_ERROR(outcome);
  const double* loss = run.Find("loss");
  return loss == nullptr ? trainer->state().loss : *loss;
}

}  // namespace

template <>
struct KindName<std::shared_ptr<LuaTrainer>> {
  static constexpr const char* value = "Trainer";
};

namespace {

StatusOr<LuaTrainer*> Self(lua_State* L) {
  const auto* t = ToObject<std::shared_ptr<LuaTrainer>>(L, 1);
  if (t == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("expected a Trainer before the colon, got ", Describe(L, 1)));
  return t->get();
}

StatusOr<int> MakeTrainer(lua_State* L, Session& session) {
  auto t = std::make_shared<LuaTrainer>();
  RETURN_IF_ERROR(t->Read(L, session));
  PushObject<std::shared_ptr<LuaTrainer>>(L, std::move(t));
  return 1;
}

StatusOr<int> RunTrainer(lua_State* L, Session& session) {
  if (session.trace != nullptr) return absl::FailedPreconditionError("training inside a trace");
  ASSIGN_OR_RETURN(LuaTrainer* const t, Self(L));
  ASSIGN_OR_RETURN(const double loss, t->Train(session));
  lua_pushnumber(L, loss);
  return 1;
}

StatusOr<int> TrainerMetrics(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const LuaTrainer* const t, Self(L));
  lua_newtable(L);
  for (const auto& f : t->run.found) {
    lua_pushnumber(L, f.second);
    lua_setfield(L, -2, f.first.c_str());
  }
  return 1;
}

// core.evaluate(graph, dataset)
StatusOr<int> Evaluate(lua_State* L, Session& session) {
  const auto* graph = ToObject<std::shared_ptr<TracedGraph>>(L, 1);
  const auto* dataset = ToObject<std::shared_ptr<DatasetHandle>>(L, 2);
  if (graph == nullptr || dataset == nullptr)
    return absl::InvalidArgumentError("evaluate: expected a Graph and a Dataset");
  ASSIGN_OR_RETURN(const auto pipeline, (*dataset)->Open(session));
  data::Loader loader(pipeline, data::LoaderOptions());
  ASSIGN_OR_RETURN(const auto executable, CompileGraph(session, **graph));
  ASSIGN_OR_RETURN(const auto evaluator, Evaluator::Create(executable.get(), &loader));
  ASSIGN_OR_RETURN(const Numbers values, evaluator->Run());
  lua_newtable(L);
  for (const auto& v : values) {
    lua_pushnumber(L, v.second);
    lua_setfield(L, -2, v.first.c_str());
  }
  return 1;
}

// One step at a time, fed by Lua.
struct Stepper {
  std::shared_ptr<TracedGraph> graph;
  std::unique_ptr<Executable> executable;
  Schedule schedule;
  Callback lr_function;
  int64_t step = 0;
};

}  // namespace

template <>
struct KindName<std::shared_ptr<Stepper>> {
  static constexpr const char* value = "Stepper";
};

namespace {

StatusOr<int> StepOnce(lua_State* L, Session& session) {
  Stepper& s = **static_cast<std::shared_ptr<Stepper>*>(lua_touserdata(L, lua_upvalueindex(1)));
  std::vector<Tensor> data;
  std::vector<int32_t> columns;
  const Graph& graph = s.graph->graph;
  for (int32_t i : graph.Inputs()) {
    if (graph.nodes[i].attrs.Str("kind") == kData) columns.push_back(i);
  }
  if (static_cast<int>(columns.size()) != lua_gettop(L)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a training step takes ", columns.size(), " tensors, got ", lua_gettop(L)));
  }
  for (size_t c = 0; c < columns.size(); ++c) {
    const Node& node = graph.nodes[columns[c]];
    ASSIGN_OR_RETURN(Tensor t,
                     ReadTensor(session, L, static_cast<int>(c) + 1, absl::nullopt, absl::StrCat("argument ", c + 1)));
    if (t.type != node.outputs[0]) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", c + 1, " of the training step is ", ToString(t.type),
                                                     ", it was made for ", ToString(node.outputs[0])));
    }
    RETURN_IF_ERROR(s.executable->BindInput(node.attrs.Str("name"), t.data.get()));
    data.push_back(std::move(t));
  }
  double lr = s.lr_function.ok() ? 0 : s.schedule.At(s.step);
  if (s.lr_function.ok()) {
    s.lr_function.Push(L);
    lua_pushnumber(L, static_cast<double>(s.step + 1));
    lua_pushnumber(L, 1);
    RETURN_IF_ERROR(session.Call(2, 1));
    ASSIGN_OR_RETURN(lr, ReadNumber(L, -1, "the learning rate's function should return a number"));
  }
  // A step need not read these: SGD knows no number of the step.
  for (const auto& [name, value] : {std::make_pair("lr", lr), {"step", static_cast<double>(s.step)}}) {
    const auto& names = s.executable->inputs();
    if (std::find(names.begin(), names.end(), name) != names.end())
      RETURN_IF_ERROR(s.executable->SetScalar(name, value));
  }
  RETURN_IF_ERROR(s.executable->Run());
  ++s.step;
  const TensorView loss = s.executable->Output(0);
  ASSIGN_OR_RETURN(Tensor out, NewTensor(session, loss.type));
  std::memcpy(out.data.get(), loss.data, static_cast<size_t>(loss.type.bytes()));
  PushObject<Tensor>(L, std::move(out));
  return 1;
}

// core.stepper(spec)
StatusOr<int> MakeStepper(lua_State* L, Session& session) {
  RETURN_IF_ERROR(CheckFields(L, 1, "stepper", {"graph", "schedule", "lr_function"}));
  auto s = std::make_shared<Stepper>();
  ASSIGN_OR_RETURN(s->graph, FieldGraph(L, 1, "stepper"));
  s->lr_function = Callback::Field(session, 1, "lr_function");
  lua_getfield(L, 1, "schedule");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(s->schedule, ReadSchedule(L, -1));
  }
  ASSIGN_OR_RETURN(s->executable, CompileGraph(session, *s->graph));
  PushObject<std::shared_ptr<Stepper>>(L, std::move(s));
  lua_pushcclosure(L, Entry<StepOnce>, 1);
  return 1;
}

}  // namespace

void OpenTrainers(lua_State* L) {
  NewKind<std::shared_ptr<Stepper>>(L);
  lua_pop(L, 1);
  NewKind<std::shared_ptr<LuaTrainer>>(L);
  lua_newtable(L);
  SetFunctions(L, {{"run", Entry<RunTrainer>}, {"metrics", Entry<TrainerMetrics>}});
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  SetFunctions(L, {{"trainer", Entry<MakeTrainer>}, {"evaluate", Entry<Evaluate>}, {"stepper", Entry<MakeStepper>}});
}

}  // namespace mslua
