#include "lua/trainer_run.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "attach/server/endpoint.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/base/input_file.h"
#include "core/base/version.h"
#include "core/files/file_lock.h"
#include "core/files/record_file.h"
#include "core/runtime/profile.h"
#include "core/step/global_view.h"
#include "core/step/parameter.h"
#include "core/step/plan_decisions.h"
#include "core/step/prints.h"
#include "core/train/agreement.h"
#include "core/train/early_stopping_hook.h"
#include "core/train/epoch_hook.h"
#include "core/train/loss_scale_hook.h"
#include "core/train/metrics.h"
#include "core/train/monitor.h"
#include "core/train/plateau_hook.h"
#include "core/train/restore.h"
#include "core/train/save_places.h"
#include "core/train/shared_checkpoint.h"
#include "core/train/status_line.h"
#include "launch/job.h"
#include "launch/this_host.h"
#include "lua/compile_graph.h"
#include "lua/device.h"
#include "lua/json.h"
#include "lua/lua_hook.h"
#include "lua/lua_stack.h"
#include "lua/options.h"
#include "train/kept_training.h"
#include "train/run_folder.h"
#include "train/run_records.h"
#include "train/signal_scope.h"
#include "train/unsaved_values.h"

namespace mslua {

StatusOr<std::shared_ptr<const data::Pipeline>> OpenEval(Session& session, DatasetHandle& dataset) {
  if (session.state().view.get() == nullptr) return dataset.Open(session);
  const auto feeds = std::exchange(session.feeds, 1), feed = std::exchange(session.feed, 0);
  auto pipeline = dataset.Open(session);
  session.feeds = feeds;
  session.feed = feed;
  return pipeline;
}

Groups* SumsOver(Session& session, Groups* together) {
  return session.state().view.get() == nullptr ? together : nullptr;
}

StatusOr<std::vector<std::string>> VaryingOf(Session& session, const TracedGraph& graph) {
  std::vector<std::string> varying;
  for (const auto& p : graph.parameters) {
    const auto& outputs = graph.graph.outputs;
    const bool replaced =
        std::any_of(outputs.begin(), outputs.end(), [&](const GraphOutput& o) { return o.updates == p->key; });
    if (!p->MayVary() || replaced) continue;
    RETURN_IF_ERROR(ValueOf(session.state(), *p).status());
    varying.push_back(p->key);
  }
  return varying;
}

namespace {

// Ranks that train together make as many steps of batches of one type: FailedPrecondition where they do not. A warning
// where they read different data all the same: their files may be of different versions.
Status CompareDatasets(Groups& groups, const DatasetHandle& dataset) {
  ASSIGN_OR_RETURN(const data::SourceDef* source, data::FindSource(dataset.description.source().kind()));
  std::string steps = absl::StrCat(dataset.pipeline->size(), " batches of");
  for (const data::Column& c : dataset.pipeline->schema()) absl::StrAppend(&steps, " ", c.name, " ", ToString(c.type));
  const std::string mine = absl::StrCat(steps, "\n", source->title, ", ", dataset.pipeline->source_size(), " samples");
  ASSIGN_OR_RETURN(const auto all, GatherTexts(groups, mine, "the data sets"));
  const std::vector<std::string> first = absl::StrSplit(all[0], '\n');
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const std::vector<std::string> other = absl::StrSplit(all[r], '\n');
    const std::string what = absl::StrCat("the data set of rank ", r, " (", other[1], ", ", other[0],
                                          ") is not that of rank 0 (", first[1], ", ", first[0], ")");
    if (other[0] != first[0]) {
      return absl::FailedPreconditionError(
          absl::StrCat(what,
                       "; ranks that train together make the same steps: give each as many samples, and the same "
                       "batch size"));
    }
    if (groups.rank() == 0) std::fprintf(stderr, "mslua: warning: %s\n", what.c_str());
  }
  return absl::OkStatus();
}

// What of the store is not the same on all ranks: layerwise_parallel parameters with their optimizer state, what is
// sharded, and what data parallel ranks compute from their own batches (running statistics).
TensorParts PartsOf(Session& session, const TracedGraph& graph, bool together) {
  TensorParts parts;
  if (const GlobalView* view = session.state().view.get()) {
    // What another stage keeps is not this rank's to save, even where a recipe has looked at it.
    for (const auto& e : session.state().store.entries()) {
      const int owner = view->OwnerOf(e->name);
      if (owner != kNoStage && owner != view->stage()) parts[e->name].replica = true;
    }
    for (const auto& p : graph.parameters) {
      const GlobalView::Part* part = view->Find(p->key);
      if (part == nullptr || (part->layout.replicated() && view->stages() == 1)) continue;
      TensorPart& t = parts[p->key];
      t.of = part->whole.shape;
      t.at = part->begin;
      t.replica = !part->first;
    }
    return parts;
  }
  for (const auto& p : graph.parameters) {
    if (together && p->MayVary() && !session.state().optimizer_states.contains(p->key)) parts[p->key].varies = true;
    if (p->slice_of > 0) {
      parts[p->key].begin = p->slice_begin;
      parts[p->key].whole = p->slice_of;
      parts[p->key].replica = p->replica;
    }
    if (!p->layerwise_parallel) continue;
    parts[p->key].own = true;
    for (const auto& e : session.state().optimizer_states) {
      if (e.second->state_of == p->key) parts[e.first].own = true;
    }
  }
  return parts;
}

// What of the store this training saves: the network's parameters and states, and what else its step reads, such as the
// optimizer's state.
TensorNames NamesOf(Session& session, const TrainerSpec& spec) {
  TensorNames names;
  absl::flat_hash_set<std::string> taken;
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    taken.insert(spec.parameter_names[i]);
    if (spec.parameters[i]->saved) names[KeyOf(session.state(), *spec.parameters[i])] = spec.parameter_names[i];
  }
  for (const auto& p : spec.graph->parameters) {
    if (names.contains(p->key) || !p->saved) continue;
    const auto of = names.find(p->state_of);
    const std::string name = of == names.end() ? p->key : absl::StrCat(p->state_kind, ".", of->second);
    names[p->key] = taken.insert(name).second ? name : p->key;
  }
  return names;
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

void PrintNote(const std::string& text) { std::fprintf(stderr, "mslua: note: %s\n", text.c_str()); }

// The run of a TrainerSpec: everything that lives as long as it. Members die in the opposite order of their making.
class Training {
 public:
  Training(TrainerSpec* spec, Session* session) : spec_(*spec), session_(*session), L_(session->lua()) {}
  ~Training() {
    if (!done_) RemoveUnusedFolder();
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // The last epoch's mean loss.
  StatusOr<double> Run() {
    auto loss = TrainToEnd();
    done_ = loss.ok();
    RecordOutcome(loss.status());
    return loss;
  }

  // Trains as long as measuring takes; nothing is saved.
  Status Profile(int64_t steps, bool steps_only, bool json, const std::string& trace) {
    spec_.options.check_loss = false;  // random data may diverge
    RETURN_IF_ERROR(Prepare());
    const auto step = [this]() -> Status {
      ASSIGN_OR_RETURN(const bool made, trainer_->Step());
      return made ? absl::OkStatus() : trainer_->Step().status();  // past an epoch's end
    };
    const Status status = ReportProfile(executable_.get(), step, steps, steps_only, json, trace);
    progress() = Progress();
    return status;
  }

 private:
  StatusOr<double> TrainToEnd() {
    RETURN_IF_ERROR(Prepare());
    RETURN_IF_ERROR(Resume());
    RETURN_IF_ERROR(AddHooks());
    if (spec_.broadcast && !kept_->found())
      RETURN_IF_ERROR(BroadcastParameters(session_, *spec_.graph, checkpoint_ != nullptr));
    if (checkpoint_ != nullptr) {
      const checkpoint::RunState& run = checkpoint_->manifest().run;
      RETURN_IF_ERROR(trainer_->Restore(restored_, run.counters));
      for (const std::string& intervention : run.interventions) trainer_->AddIntervention(intervention);
    }
    RETURN_IF_ERROR(KeepTurns());
    if (first()) PrintPlan();
    if (checkpoint_ != nullptr && first()) NoteNothingLeft();
    RETURN_IF_ERROR(OpenEndpoint());
    Status outcome;
    {
      const SignalScope signals([this] { trainer_->RequestStop(); }, SignalConsole());
      outcome = trainer_->Run();
      *spec_.history = trainer_->history();
    }
    return Finish(std::move(outcome));
  }

  // Who tells a user that a signal has come. Of several ranks the first one, where nobody else does.
  SignalScope::Console SignalConsole() const {
    using Console = SignalScope::Console;
    const Job* const job = session_.job;
    if (job == nullptr) return Console::kOwn;
    const auto source = job->identity().source;
    if (source == Identity::Source::kMpi) return Console::kMpirun;
    return source == Identity::Source::kLauncher || !session_.prints ? Console::kLauncher : Console::kOwn;
  }

  Progress& progress() { return spec_.progress; }
  Groups* together() const { return spec_.together; }
  // Whether this rank writes what is the same on all ranks.
  bool first() const { return together() == nullptr || together()->rank() == 0; }

  // Data, step, trainer.
  Status Prepare() {
    progress() = Progress();
    ASSIGN_OR_RETURN(const auto pipeline, spec_.dataset->Open(session_));
    loader_ = std::make_unique<data::Loader>(pipeline, spec_.dataset->ForLoader());
    progress().epochs = spec_.options.epochs;
    progress().steps_per_epoch = pipeline->size();
    if (pipeline->size() == 0) return absl::InvalidArgumentError("train: the dataset has no whole batch");
    if (together() != nullptr) RETURN_IF_ERROR(WithExitCode(CompareDatasets(*together(), *spec_.dataset), kExitHang));
    RETURN_IF_ERROR(FindCheckpoint());
    ASSIGN_OR_RETURN(
        decisions_, DecidePlan(spec_.graph->graph, DumpsOf(session_), OptionBool(L_, "tune"), together(), SavedPlan()));
    ASSIGN_OR_RETURN(executable_, CompileGraph(session_, *spec_.graph, together() != nullptr, &decisions_));
    parts_ = PartsOf(session_, *spec_.graph, together() != nullptr);
    names_ = NamesOf(session_, spec_);
    if (together() != nullptr) {
      RETURN_IF_ERROR(WithExitCode(ComparePrograms(), kExitHang));
    }
    if (spec_.dataset->Divided() && session_.state().rank == 0) {
      std::fprintf(stderr, "mslua: global batch %lld = %lld x %lld feeds\n",
                   static_cast<long long>(pipeline->rows() * spec_.dataset->feeds),
                   static_cast<long long>(pipeline->rows()), static_cast<long long>(spec_.dataset->feeds));
    } else if (spec_.dataset->Repeated() && session_.state().rank == 0) {
      std::fprintf(
          stderr,
          "mslua: note: GeneratorDataset: every rank runs the iterator whole, so that all see the same samples "
          "unless it looks at ms.communication.get_rank(); function(i) with length is shared among the ranks\n");
    }
    RETURN_IF_ERROR(WithExitCode(OpenRecords(), kExitStorage));
    progress().console = console_.get();
    ASSIGN_OR_RETURN(std::vector<ScheduledScalar> scalars, Scalars());
    TrainerOptions trainer_options = spec_.options;
    trainer_options.rows = GlobalRows();
    if (together() != nullptr) trainer_options.agree = [this](bool stop) { return AgreeToStop(stop); };
    ASSIGN_OR_RETURN(trainer_, Trainer::Create(executable_.get(), loader_.get(), std::move(scalars), trainer_options,
                                               console_.get()));
    progress().trainer = trainer_.get();
    return absl::OkStatus();
  }

  // Whether all ranks make the same step.
  Status ComparePrograms() {
    RETURN_IF_ERROR(CompareTexts(*together(), absl::StrCat(spec_.graph->common, ScheduleText()), "a training step"));
    return CompareSchedules(*together(), executable_->graph());
  }

  // The run folder, and the log of this rank in it.
  Status OpenRecords() {
    if (folder_.empty()) {
      ASSIGN_OR_RETURN(folder_, spec_.RunFolder(session_, resume_, &new_folder_));
      RETURN_IF_ERROR(TakeFolder());
    }
    if (first() && !folder_.empty() && !RememberedFolder().empty()) {
      const std::string& path = session_.job->identity().recovery_path;
      if (!path.empty()) RETURN_IF_ERROR(MakeFolders(path));
      RETURN_IF_ERROR(WriteFileAtomically(RememberedFolder(), folder_));
    }
    RETURN_IF_ERROR(RecordLaunch());
    if (!folder_.empty()) RETURN_IF_ERROR(SettleEarlierRecords());
    Console::Options options;
    options.log_every = spec_.log_every;
    options.enabled = session_.prints && !OptionBool(L_, "json");  // whose lines are objects
    options.prefix = session_.prefix;
    if (!folder_.empty()) options.log_path = absl::StrCat(folder_, "/rank_", session_.state().rank, ".log");
    if (session_.job != nullptr) session_.job->LogTo(options.log_path);
    options.health = &health_;
    console_ = std::make_unique<Console>(options);
    return console_->opened();
  }

  // What is in the run folder already: a training that resumes continues it, one that begins has it out of its way.
  Status SettleEarlierRecords() {
    const bool begins = session_.written.insert(folder_).second;  // else this process has trained before
    if (checkpoint_ != nullptr) return CutBackRecords();
    if (!begins || kept_->found()) return absl::OkStatus();
    const RecordsOwner owner = {rank(), first()};
    std::string earlier;  // where they go; empty: they are of this job, which starts again
    if (first() && remembered_ != folder_) earlier = EarlierFolder(folder_);
    if (together() != nullptr) RETURN_IF_ERROR(ShareText(*together(), &earlier, "where earlier records go"));
    if (earlier.empty()) return EmptyRecords(folder_, owner);
    ASSIGN_OR_RETURN(const bool moved, MoveRecords(folder_, earlier, owner));
    if (moved && first())
      PrintNote(absl::StrCat(folder_, " had the logs and metrics of an earlier training: they are in ", folder_, "/",
                             earlier, " (--resume continues a training)"));
    return absl::OkStatus();
  }

  // Removes what the run wrote after the checkpoint that it resumes from: those steps are made again.
  Status CutBackRecords() {
    const checkpoint::RunState& run = checkpoint_->manifest().run;
    const int64_t each = progress().steps_per_epoch;
    const bool ends_epoch = run.data_batch == each;  // the evaluation at its end is still to come
    RETURN_IF_ERROR(CutRecordsFrom(absl::StrCat(folder_, "/rank_", rank(), ".log"), [&](absl::string_view line) {
      int64_t epoch = 0, step = 0;
      if (!ReadLossLine(line, &epoch, &step)) return false;
      return epoch > run.epoch + 1 || (epoch == run.epoch + 1 && step > run.data_batch);
    }));
    if (!first()) return absl::OkStatus();
    return CutRecordsFrom(absl::StrCat(folder_, "/", kRunMetrics), [&](absl::string_view line) {
      bool loss = false;
      const int64_t step = StepOfMetrics(line, &loss);
      return step > run.step || (step == run.step && !loss && ends_epoch);
    });
  }

  // Rows of a batch over all ranks.
  int64_t GlobalRows() const {
    return loader_->pipeline().rows() * (spec_.dataset->Divided() ? spec_.dataset->feeds : 1);
  }

  // The place in the epoch where a run with other batches continues: the batch that the next sample is in.
  void FindPlace() {
    const auto saved = static_cast<int64_t>(CounterOf(checkpoint_->manifest().run.counters, kRowsCounter, 0));
    if (saved == 0 || saved == GlobalRows()) return;
    restored_.step_in_epoch = std::min(restored_.step_in_epoch * saved / GlobalRows(), progress().steps_per_epoch);
    if (restored_.step_in_epoch == 0 || !first()) return;
    std::fprintf(stderr,
                 "mslua: note: global batches were of %lld rows and are of %lld: the epoch continues at batch %lld\n",
                 static_cast<long long>(saved), static_cast<long long>(GlobalRows()),
                 static_cast<long long>(restored_.step_in_epoch + 1));
  }

  // What all ranks must have in common besides the step.
  std::string ScheduleText() const {
    std::string text = absl::StrCat("epochs ", spec_.options.epochs, ", max_steps ", spec_.options.max_steps, "\n");
    if (spec_.lr_function.ok()) return text;
    for (const int64_t step : {1, 10, 100, 1000, 10000})
      absl::StrAppend(&text, "learning rate of step ", step, " ",
                      spec_.schedule.At(spec_.options.before.steps + step - 1), "\n");
    return text;
  }

  // One training writes into a run folder: rank 0 locks it for all that train together. What killed ones left is
  // removed.
  Status TakeFolder() {
    if (folder_.empty() || !first()) return absl::OkStatus();
    auto lock = FileLock::Acquire(absl::StrCat(folder_, "/", kRunLock));
    if (absl::IsUnavailable(lock.status())) {
      return absl::UnavailableError(absl::StrCat("run folder ", folder_, " is ", lock.status().message(),
                                                 ": wait for its end (mslua stop ", folder_,
                                                 " ends it), or give another folder (--out)"));
    }
    RETURN_IF_ERROR(lock.status());
    lock_ = *std::move(lock);
    if (!lock_->locked()) {
      std::fprintf(stderr, "mslua: note: %s: this file system has no locks: start no second training there\n",
                   folder_.c_str());
    }
    RemoveLeftovers(folder_);
    unlink(OutcomePath().c_str());  // of the training before
    return absl::OkStatus();
  }

  std::string OutcomePath() const { return absl::StrCat(folder_, "/", kRunOutcome); }

  // How this training ended, for who looks at the folder later.
  void RecordOutcome(const Status& outcome) {
    if (lock_ == nullptr) return;
    std::string text = absl::StrCat("{\"state\":\"",
                                    outcome.ok()                 ? "done"
                                    : absl::IsCancelled(outcome) ? "stopped"
                                                                 : "failed",
                                    "\",\"step\":", trainer_ == nullptr ? restored_.step : trainer_->state().step);
    if (!outcome.ok()) absl::StrAppend(&text, ",\"cause\":", JsonString(outcome.message()));
    const Status written = WriteFileAtomically(OutcomePath(), text + "}\n");
    if (!written.ok()) PrintNote(absl::StrCat("how the run ended is not recorded: ", written.message()));
  }

  // rank_<r>.env: what this rank was started with.
  Status RecordLaunch() const {
    if (folder_.empty() || session_.state().ranks == 1) return absl::OkStatus();
    RETURN_IF_ERROR(MakeFolders(folder_));  // rank 0's may be on another host
    std::string text;
    for (const auto& [name, value] : LaunchVariables(OwnEnvironment())) absl::StrAppend(&text, name, "=", value, "\n");
    return WriteFileAtomically(absl::StrCat(folder_, "/rank_", session_.state().rank, ".env"), text);
  }

  // A callback's wish to stop ends the training as done on every rank, a request breaks it off; what somebody wanted to
  // pause at pauses all ranks where one of them has it.
  StatusOr<bool> AgreeToStop(bool stop) {
    // Between: the number of a break. From kBreakOff on: what SignalScope::Request says.
    constexpr int32_t kGoOn = 0, kDone = 1 << 20, kBreakOff = kDone + 1;
    const int32_t hit = endpoint_ == nullptr ? kGoOn : endpoint_->boundary().BreakHit(trainer_->state());
    const int32_t mine = !stop ? hit : progress().stopped ? kDone : kBreakOff + SignalScope::Request();
    std::array<int32_t, 2> wishes = {mine, static_cast<int32_t>(kept_->pace())};
    RETURN_IF_ERROR(LargestOfRanks(*together(), absl::MakeSpan(wishes), "the end of a step"));
    const int32_t wish = wishes[0];
    kept_->AgreeOn(wishes[1]);
    progress().stopped = wish == kDone;
    if (wish >= kBreakOff) SignalScope::Heed(wish - kBreakOff);
    if (wish > kGoOn && wish < kDone) {
      if (endpoint_ == nullptr) return absl::InternalError("another rank pauses, but nobody can attach to this one");
      RETURN_IF_ERROR(endpoint_->boundary().PauseNext(trainer_->state(), wish));
    }
    return wish >= kDone;
  }

  StatusOr<std::vector<ScheduledScalar>> Scalars() {
    std::vector<ScheduledScalar> scalars(1);
    scalars[0].input = "lr";
    scalars[0].schedule = spec_.schedule;
    if (spec_.plateau) scalars[0].factor = [this] { return plateau_ == nullptr ? 1 : plateau_->scale(); };
    if (spec_.lr_function.ok()) {
      scalars[0].user = [this](int64_t step) -> StatusOr<double> {
        const StackGuard guard(L_);
        spec_.lr_function.Push(L_);
        lua_pushnumber(L_, static_cast<double>(step + 1));
        lua_pushnumber(L_, static_cast<double>(step / progress().steps_per_epoch + 1));
        RETURN_IF_ERROR(session_.Call(2, 1));
        return ReadNumber(L_, -1, "the learning rate's function should return a number");
      };
    }
    if (spec_.loss_scale_kind.empty()) return scalars;
    int finite = -1;
    const auto& outputs = spec_.graph->graph.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].name == "finite") finite = static_cast<int>(i);
    }
    if (finite < 0) return absl::InvalidArgumentError("trainer: loss_scale needs a graph built with loss_scale = true");
    loss_scale_ = std::make_unique<LossScaleHook>(&progress(), finite, spec_.loss_scale, spec_.loss_scale_factor,
                                                  spec_.loss_scale_window, spec_.loss_scale_kind == "dynamic");
    scalars.emplace_back();
    scalars.back().input = "loss_scale";
    scalars.back().user = [this](int64_t) -> StatusOr<double> { return loss_scale_->scale(); };
    return scalars;
  }

  std::string CheckpointDirectory() const {
    return !spec_.checkpoint_directory.empty() ? spec_.checkpoint_directory : absl::StrCat(folder_, "/ckpt");
  }

  // What the run that this one resumes from has chosen; empty: it is the first.
  std::string SavedPlan() const {
    return kept_->found() ? kept_->record().plan : checkpoint_ != nullptr ? checkpoint_->manifest().run.plan : "";
  }

  // Opens the image that this job has kept, else the checkpoint that --resume names: its plan is to be compiled.
  Status FindCheckpoint() {
    RETURN_IF_ERROR(FindKept());
    if (kept_->found()) return absl::OkStatus();
    resume_ = OptionString(L_, "resume");
    if (resume_.empty()) RETURN_IF_ERROR(FindOwnCheckpoint());
    return resume_.empty() ? absl::OkStatus() : WithExitCode(OpenCheckpoint(), kExitStorage);
  }

  bool recovers() const { return session_.job != nullptr && !session_.job->identity().recovery.empty(); }
  int rank() const { return session_.state().rank; }

  // Two programs of one identity make the same steps from the same state.
  std::string IdentityText() const {
    const std::string text =
        absl::StrCat(kVersion, "\n", spec_.recipe_hash, "\n", spec_.graph->common, "\n", ScheduleText(), "\n",
                     spec_.options.seed, " ", session_.state().ranks, "\n", absl::Hex(Fingerprint(spec_.graph->graph)));
    return Blake2bHex(text).substr(0, 32);
  }

  // What this job has kept of the training in memory.
  Status FindKept() {
    // To verify a recipe trains for a moment, and is no training of its own. What a device updates is not in memory
    // that outlives the process: such a job starts again from its checkpoints.
    const bool keeps = session_.options().verb != "verify" && OptionString(L_, "device") != "cuda";
    kept_ = std::make_unique<KeptTraining>(keeps ? session_.job : nullptr, together(), rank());
    RETURN_IF_ERROR(kept_->Find(IdentityText()));
    if (!kept_->found()) return absl::OkStatus();
    restored_ = kept_->record().state;
    folder_ = kept_->record().folder;
    if (!folder_.empty()) RETURN_IF_ERROR(WithExitCode(MakeFolders(folder_), kExitStorage));
    RETURN_IF_ERROR(TakeFolder());
    for (const auto& [path, bytes] : kept_->record().files) RETURN_IF_ERROR(CutRecords(path, bytes));
    return absl::OkStatus();
  }

  // Keeps what each turn leaves in memory that outlives this process, and resumes from the turn that was found there.
  Status KeepTurns() {
    KeptTraining::Keeping keeping;
    keeping.store = &session_.state().store;
    for (const GraphOutput& o : executable_->graph().outputs) {
      if (!o.updates.empty()) keeping.updated.insert(o.updates);
    }
    keeping.trainer = trainer_.get();
    keeping.console = console_.get();
    keeping.health = &health_;
    keeping.notice = PrintNote;
    TurnRecord fixed;
    fixed.identity = IdentityText();
    fixed.folder = folder_;
    fixed.plan = PlanText(decisions_);
    if (checkpoint_hook_ != nullptr) fixed.lineage = checkpoint_hook_->lineage().run;
    RETURN_IF_ERROR(kept_->Keep(std::move(fixed), keeping));
    if (!kept_->found()) return absl::OkStatus();
    RETURN_IF_ERROR(trainer_->Restore(restored_, kept_->record().counters));
    for (const std::string& intervention : kept_->record().interventions) trainer_->AddIntervention(intervention);
    if (!first()) return absl::OkStatus();
    const int64_t again = kept_->steps_again();
    std::fprintf(stderr, "mslua: resuming from memory at step %lld (%lld %s computed again)\n",
                 static_cast<long long>(restored_.step), static_cast<long long>(again), again == 1 ? "step" : "steps");
    return absl::OkStatus();
  }

  // The file that remembers this training's run folder for the processes that follow in a job that starts again; empty:
  // there is none.
  std::string RememberedFolder() const {
    if (!recovers()) return "";
    const Identity& identity = session_.job->identity();
    const auto path = identity.recovery_path.empty() ? ImageKeeper::Folder(identity.recovery)
                                                     : StatusOr<std::string>(identity.recovery_path);
    const std::string own = together() == nullptr && session_.state().ranks > 1 ? absl::StrCat(".", rank()) : "";
    return path.ok() ? absl::StrCat(*path, "/run_folder.", kept_->number(), own) : "";
  }

  // Where a job starts again and no memory has outlived it: the newest checkpoint of the run folder that was named.
  Status FindOwnCheckpoint() {
    if (!recovers()) return absl::OkStatus();
    const auto read = [this]() -> StatusOr<std::string> {
      if (RememberedFolder().empty()) return "";
      const auto remembered = ReadFile(RememberedFolder(), 1 << 16);
      return absl::IsNotFound(remembered.status()) ? "" : remembered;
    };
    ASSIGN_OR_RETURN(remembered_, TextOfFirstRank(together(), read, "the run folder that is remembered"));
    std::string out = OptionString(L_, "out");
    if (out.empty()) folder_ = out = remembered_;
    const std::string directory = !spec_.checkpoint_directory.empty() ? spec_.checkpoint_directory
                                  : out.empty()                       ? ""
                                                                      : absl::StrCat(out, "/ckpt");
    if (directory.empty() || !spec_.has_checkpoint) {
      folder_.clear();
      return absl::OkStatus();
    }
    const auto there = checkpoint::ListCheckpoints(directory);
    const bool has = there.ok() && !there->empty();
    int32_t without = has ? 0 : 1;
    if (together() != nullptr) {
      ASSIGN_OR_RETURN(without, LargestOfRanks(*together(), without, "whether there are checkpoints"));
    }
    if (without == 0)
      resume_ = "last";
    else
      folder_.clear();  // nothing is there to resume from
    return absl::OkStatus();
  }

  Status OpenCheckpoint() {
    if (folder_.empty()) {
      ASSIGN_OR_RETURN(folder_, spec_.RunFolder(session_, resume_, &new_folder_));
    }
    RETURN_IF_ERROR(TakeFolder());  // before the newest checkpoint is looked for
    ASSIGN_OR_RETURN(const std::string from, CheckpointPlace(resume_, spec_.name, CheckpointDirectory()));
    if (together() == nullptr) {
      ASSIGN_OR_RETURN(resumed_.own, checkpoint::LoadCheckpoint(from));
    } else {
      ASSIGN_OR_RETURN(resumed_, OpenOnAllRanks(*together(), from));
    }
    checkpoint_ = resumed_.own.get();
    return absl::OkStatus();
  }

  Status Restore(RestoreReport* report) {
    RETURN_IF_ERROR(MakeValues([this](const std::string& name) { return checkpoint_->Find(name) != nullptr; }));
    ASSIGN_OR_RETURN(restored_, RestoreCheckpoint(together(), resumed_, session_.state().store, names_, parts_,
                                                  session_.state().rank, report));
    FindPlace();
    return together() == nullptr ? absl::OkStatus() : CompareSteps();
  }

  // Makes the tensors that the image has.
  Status MakeKeptValues() {
    const std::vector<std::string>& tensors = kept_->record().tensors;
    const absl::flat_hash_set<std::string> kept(tensors.begin(), tensors.end());
    for (const auto& p : spec_.parameters) {
      if (session_.state().store.Find(KeyOf(session_.state(), *p)) == nullptr && kept.contains(p->key))
        RETURN_IF_ERROR(ValueOf(session_.state(), *p).status());
    }
    return absl::OkStatus();
  }

  // Fills the store from that checkpoint.
  Status Resume() {
    ASSIGN_OR_RETURN(unsaved_, UnsavedDigest());
    if (kept_->found()) return MakeKeptValues();
    if (checkpoint_ == nullptr) return absl::OkStatus();
    RestoreReport report;
    RETURN_IF_ERROR(WithExitCode(Restore(&report), kExitStorage));
    const double saved = CounterOf(checkpoint_->manifest().run.counters, kUnsavedCounter, 0);
    RETURN_IF_ERROR(WithExitCode(CompareUnsaved(saved, unsaved_, checkpoint_->path()), kExitStorage));
    if (!checkpoint_->note().empty()) PrintNote(checkpoint_->note());
    const GlobalView* const view = session_.state().view.get();
    const bool has_all = view == nullptr || view->stages() == 1;  // else the other stages have the rest
    if (!report.ignored.empty() && has_all)
      std::fprintf(stderr, "mslua: note: %s has tensors that this run does not: %s\n", checkpoint_->path().c_str(),
                   absl::StrJoin(report.ignored, ", ").c_str());
    if (!first()) return absl::OkStatus();
    if (!report.renamed.empty())
      std::fprintf(stderr, "mslua: note: %s is of an older version and has other names: %s\n",
                   checkpoint_->path().c_str(),
                   absl::StrJoin(report.renamed, ", ", absl::PairFormatter(" from ")).c_str());
    std::fprintf(stderr, "mslua: resuming from %s at step %lld\n", checkpoint_->path().c_str(),
                 static_cast<long long>(restored_.step));
    NoteDifferences();
    return absl::OkStatus();
  }

  // Of what checkpoints leave out; 0 also where this rank has a part of it.
  StatusOr<double> UnsavedDigest() const {
    for (const auto& p : spec_.parameters) {
      const auto part = parts_.find(p->key);
      if (!p->saved && part != parts_.end() && (part->second.whole > 0 || !part->second.of.empty())) return 0;
    }
    return DigestOfUnsaved(session_.state(), spec_.parameters, spec_.parameter_names);
  }

  // Gives those parameters of the network a value that no step reads, for the checkpoint to have them all; where
  // `wanted` says so of their name.
  Status MakeValues(const std::function<bool(const std::string& name)>& wanted) {
    const GlobalView* const view = session_.state().view.get();
    for (size_t i = 0; i < spec_.parameters.size(); ++i) {
      ParameterData& p = *spec_.parameters[i];
      const int owner = view == nullptr ? kNoStage : view->OwnerOf(p.key);
      const bool elsewhere = owner != kNoStage && owner != view->stage();
      if (elsewhere || session_.state().store.Find(p.key) != nullptr || !wanted(spec_.parameter_names[i])) continue;
      RETURN_IF_ERROR(ValueOf(session_.state(), p).status());
    }
    return absl::OkStatus();
  }

  // What makes the steps that follow others than those of the run that was saved.
  void NoteDifferences() const {
    const checkpoint::RunState& saved = checkpoint_->manifest().run;
    if (!checkpoint_->has_manifest()) return;
    if (saved.seed != spec_.options.seed) {
      PrintNote(absl::StrCat(checkpoint_->path(), " was saved with seed ", saved.seed, ", this run has seed ",
                             spec_.options.seed, ": the order of samples and random numbers differ from here on"));
    }
    if (!saved.recipe_hash.empty() && !spec_.recipe_hash.empty() && saved.recipe_hash != spec_.recipe_hash) {
      PrintNote(absl::StrCat("the recipe's file has changed since ", checkpoint_->path(), " was saved"));
    }
  }

  Status CompareSteps() const {
    ASSIGN_OR_RETURN(const auto steps,
                     GatherTexts(*together(), absl::StrCat(restored_.step), "the steps of checkpoints"));
    for (size_t r = 1; r < steps.size(); ++r) {
      if (steps[r] != steps[0]) {
        return absl::InvalidArgumentError(absl::StrCat("rank 0 would resume at step ", steps[0], ", rank ", r,
                                                       " from step ", steps[r], ": give all ranks one checkpoint"));
      }
    }
    return absl::OkStatus();
  }

  template <typename Hook>
  Hook* Add(std::unique_ptr<Hook> hook) {
    Hook* const h = hook.get();
    trainer_->AddHook(h);
    hooks_.push_back(std::move(hook));
    return h;
  }

  // The newest checkpoint that this run has saved there before it started again; empty: none.
  std::string NewestOfLineage(const std::string& directory) const {
    const auto there = checkpoint::ListCheckpoints(directory);
    if (!there.ok() || kept_->record().lineage.empty()) return "";
    for (const checkpoint::CheckpointName& name : *there) {
      if (name.lineage.run == kept_->record().lineage) return name.path;
    }
    return "";
  }

  // In the order in which they act: an evaluation's numbers are there for the metrics, the checkpoint, the callbacks.
  Status AddHooks() {
    Add(std::make_unique<EpochHook>(&progress(), spec_.time_every, spec_.time_steps, spec_.log_epochs));
    if (loss_scale_ != nullptr) trainer_->AddHook(loss_scale_.get());
    if (unsaved_ != 0) Add(std::make_unique<UnsavedHook>(unsaved_));
    std::unique_ptr<MetricsHook> metrics;
    if (!folder_.empty() && first()) {
      const MetricsOptions options{folder_, std::max<int64_t>(1, progress().steps_per_epoch / 100), spec_.metrics_limit,
                                   GlobalRows()};
      ASSIGN_OR_RETURN(metrics, WithExitCode(MetricsHook::Create(options, trainer_.get(), &health_), kExitStorage));
      progress().metrics = metrics.get();
      if (!spec_.config.empty()) {
        const Status written = WriteFileAtomically(absl::StrCat(folder_, "/config.lua"), spec_.config);
        RETURN_IF_ERROR(WithExitCode(written, kExitStorage));
      }
    }
    if (spec_.has_eval) {
      ASSIGN_OR_RETURN(const auto pipeline, OpenEval(session_, *spec_.eval.dataset));
      eval_loader_ = std::make_unique<data::Loader>(pipeline, spec_.eval.dataset->ForLoader());
      ASSIGN_OR_RETURN(eval_executable_, CompileGraph(session_, *spec_.eval.graph));
      ASSIGN_OR_RETURN(auto varying, VaryingOf(session_, *spec_.eval.graph));
      ASSIGN_OR_RETURN(evaluator_,
                       Evaluator::Create(eval_executable_.get(), eval_loader_.get(), SumsOver(session_, together()),
                                         &session_.state().store, std::move(varying)));
      eval_hook_ = Add(std::make_unique<EvalHook>(&progress(), evaluator_.get(), spec_.eval.metrics,
                                                  spec_.eval.every_epochs, spec_.eval.every_steps));
      if (spec_.eval.finish.ok())
        eval_hook_->FinishBy([this](const auto& sums, int64_t samples) { return FinishMetrics(sums, samples); });
      // Who asks for a few steps wants those alone.
      if (OptionInt(L_, "max_steps") > 0) eval_hook_->SkipLast();
    }
    if (metrics != nullptr) Add(std::move(metrics));
    AddStatusLine();
    CheckpointOptions checkpoint = spec_.checkpoint;
    checkpoint.keeper.directory = CheckpointDirectory();
    if (checkpoint_ != nullptr) checkpoint.resumed_from = checkpoint_->path();
    if (kept_->found()) checkpoint.resumed_from = NewestOfLineage(checkpoint.keeper.directory);
    ASSIGN_OR_RETURN(const bool saves, Saves(&checkpoint));
    if (saves) RETURN_IF_ERROR(AddCheckpoints(std::move(checkpoint)));
    // By rank 0's values, which a checkpoint remembers: the others stop when it does.
    if (spec_.early_stopping && first()) {
      Add(std::make_unique<EarlyStoppingHook>(
          &progress(), MonitorOf(*spec_.early_stopping, "EarlyStopping", EarlyStoppingHook::kKey),
          spec_.early_stopping->patience));
    }
    if (spec_.plateau) AddPlateau();
    if (!FindPrints(spec_.graph->graph).empty()) Add(std::make_unique<PrintHook>(&progress(), session_.prefix));
    if (spec_.hooks != LUA_NOREF) {
      lua_rawgeti(L_, LUA_REGISTRYINDEX, spec_.hooks);
      auto hook = std::make_unique<LuaHook>(&session_, &progress(), lua_gettop(L_));
      lua_pop(L_, 1);
      if (!hook->empty()) lua_hook_ = Add(std::move(hook));
    }
    return absl::OkStatus();
  }

  Monitor MonitorOf(const TrainerSpec::Watch& watch, const char* owner, const char* key) {
    return Monitor(&progress(), watch.monitor, spec_.has_eval, watch.min_delta, watch.mode == "min", owner, key);
  }

  // By rank 0's values too, and the rate is one number on all ranks.
  void AddPlateau() {
    PlateauHook::Share share;
    if (together() != nullptr) {
      share = [this](double mine) -> StatusOr<double> {
        double of_first = first() ? mine : 0;
        RETURN_IF_ERROR(SumOverRanks(*together(), absl::MakeSpan(&of_first, 1), "the learning rate's scale"));
        return of_first;
      };
    }
    plateau_ = Add(std::make_unique<PlateauHook>(&progress(),
                                                 MonitorOf(*spec_.plateau, "ReduceLROnPlateau", PlateauHook::kKey),
                                                 spec_.plateau_options, std::move(share)));
  }

  // The values of the metrics, in their order, by Lua.
  StatusOr<Numbers> FinishMetrics(const std::vector<MetricSums>& sums, int64_t samples) {
    const StackGuard guard(L_);
    spec_.eval.finish.Push(L_);
    PushSums(L_, sums);
    lua_pushnumber(L_, static_cast<double>(samples));
    RETURN_IF_ERROR(session_.Call(2, 1));
    Numbers values;
    for (const MetricInfo& m : spec_.eval.metrics) {
      lua_getfield(L_, -1, m.name.c_str());
      values.emplace_back(m.name, lua_tonumber(L_, -1));
      lua_pop(L_, 1);
    }
    RecordMatrices();
    return values;
  }

  // eval.json: the matrices of the newest evaluation, whose results are on the stack.
  void RecordMatrices() const {
    if (spec_.eval.matrices.empty() || folder_.empty() || !first()) return;
    std::string text = absl::StrCat(
        "{\"step\":", trainer_->state().step, ",\"labels\":[",
        absl::StrJoin(spec_.eval.labels, ",",
                      [](std::string* out, const std::string& label) { absl::StrAppend(out, JsonString(label)); }),
        "],\"matrices\":{");
    const char* separator = "";
    for (const std::string& name : spec_.eval.matrices) {
      lua_getfield(L_, -1, name.c_str());
      absl::StrAppend(&text, std::exchange(separator, ","), JsonString(name), ":");
      AppendNumbers(L_, &text);
      lua_pop(L_, 1);
    }
    const Status written = WriteFileAtomically(absl::StrCat(folder_, "/", kRunMatrices), text + "}}\n");
    if (!written.ok()) PrintNote(absl::StrCat("the matrices of an evaluation are not recorded: ", written.message()));
  }

  // Of a text, which is a row of ids; 0: samples are something else.
  double TokensOfSample() const {
    const data::Pipeline& pipeline = loader_->pipeline();
    if (pipeline.schema().empty()) return 0;
    const TensorType& type = pipeline.schema()[0].type;
    const bool text = type.rank() == 2 && (type.dtype == DType::kI32 || type.dtype == DType::kI64);
    return text ? static_cast<double>(type.shape[1]) : 0;
  }

  // The live line of a terminal (--progress).
  void AddStatusLine() {
    const std::string wanted = OptionString(L_, "progress");
    const char* const term = std::getenv("TERM");
    const bool terminal =
        isatty(STDERR_FILENO) != 0 && term != nullptr && *term != 0 && absl::string_view(term) != "dumb";
    const bool speaks = first() && session_.prints && !OptionBool(L_, "json");
    if (!speaks || wanted == "off" || (!terminal && wanted != "on")) return;
    StatusLine::Options options;
    options.style = terminal ? StatusLine::Options::Style::kTerminal : StatusLine::Options::Style::kLines;
    options.rows = static_cast<double>(GlobalRows());
    options.tokens = options.rows * TokensOfSample();
    options.max_steps = spec_.options.max_steps;
    Add(std::make_unique<StatusLine>(&progress(), options));
  }

  // Whether this rank takes part in saving, and with which others. Ranks that were given one path save in it together
  // where one of them has parts of its own; else the first of them saves alone. Ranks with paths of their own do the
  // same where the parameters are sharded; else each saves what it has. A rank of a pipeline stage without parameters
  // takes part like the others.
  StatusOr<bool> Saves(CheckpointOptions* options) {
    const bool wanted = spec_.has_checkpoint && !(folder_.empty() && spec_.checkpoint_directory.empty());
    if (together() == nullptr) return wanted;
    const std::string directory = wanted ? options->keeper.directory : "";
    ASSIGN_OR_RETURN(const auto all, GatherTexts(*together(), directory, "the checkpoints' directories"));
    if (std::all_of(all.begin(), all.end(), [](const std::string& d) { return d.empty(); })) return false;
    const bool one = std::count(all.begin(), all.end(), all[0]) == static_cast<int64_t>(all.size());
    const auto on_any_rank = [this](const auto& has) {
      const bool here = std::any_of(parts_.begin(), parts_.end(), [&](const auto& p) { return has(p.second); });
      return LargestOfRanks(*together(), here ? 1 : 0, "the parts of checkpoints");
    };
    ASSIGN_OR_RETURN(const bool sliced, on_any_rank([](const TensorPart& p) { return p.whole > 0 || !p.of.empty(); }));
    ASSIGN_OR_RETURN(const bool parts, on_any_rank([](const TensorPart& p) { return !p.varies; }));
    ASSIGN_OR_RETURN(const bool varying, on_any_rank([](const TensorPart& p) { return p.varies; }));
    options->world = together()->size();
    options->parts = parts_;
    const bool each_its_part = sliced || (parts && one);
    options->writes = wanted && std::find(all.begin(), all.end(), directory) - all.begin() == together()->rank();
    if (each_its_part) {
      options->writes = wanted;
      RETURN_IF_ERROR(SaveInPlaces(all, options));
    } else if (parts) {
      options->rank = session_.state().rank;
    }
    ASSIGN_OR_RETURN(
        options->lineage,
        WithExitCode(ShareLineage(*together(), options->writes ? options->keeper.directory : "", options->resumed_from),
                     kExitStorage));
    if (each_its_part) return wanted;
    if (!varying) return options->writes;
    options->varying = together();
    return AgreeWhenToSave(wanted, options);
  }

  // Ranks that have parts of the parameters save them together, in `directories`.
  Status SaveInPlaces(const std::vector<std::string>& directories, CheckpointOptions* options) {
    const auto without = std::find(directories.begin(), directories.end(), "");
    if (without != directories.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", without - directories.begin(),
          " saves no checkpoints, and each rank has parts of the parameters: give all ranks a ModelCheckpoint"));
    }
    ASSIGN_OR_RETURN(options->places,
                     WithExitCode(FindSavePlaces(*together(), options->keeper.directory), kExitStorage));
    options->together = together();
    options->host = HostName();
    const std::set<int> places(options->places.begin(), options->places.end());
    if (places.size() > 1 && first()) {
      PrintNote(absl::StrCat("the ranks save into ", places.size(),
                             " directories: each has the parts of its ranks, and loading needs all of them"));
    }
    return absl::OkStatus();
  }

  // Ranks that give each other what varies save at the same steps, those too that write nothing. Gives whether any
  // rank saves.
  StatusOr<bool> AgreeWhenToSave(bool wanted, CheckpointOptions* options) const {
    auto& keeper = options->keeper;
    const std::string mine =
        wanted ? absl::StrCat(keeper.save_checkpoint_steps, " steps, ", keeper.save_checkpoint_seconds, " seconds")
               : "";
    ASSIGN_OR_RETURN(const auto all, GatherTexts(*together(), mine, "when to save checkpoints"));
    const auto first = std::find_if(all.begin(), all.end(), [](const std::string& s) { return !s.empty(); });
    if (first == all.end()) return false;
    const auto other = std::find_if(first, all.end(), [&](const std::string& s) { return !s.empty() && s != *first; });
    if (other != all.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", first - all.begin(), " saves a checkpoint every ", *first, ", rank ",
                       other - all.begin(), " every ", *other,
                       ": a checkpoint holds the running statistics of all ranks, so give all ranks that save the same "
                       "save_checkpoint_steps and save_checkpoint_seconds"));
    }
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(*first, absl::MaxSplits(" steps, ", 1));
    if (!absl::SimpleAtoi(words.first, &keeper.save_checkpoint_steps) ||
        !absl::SimpleAtoi(absl::StripSuffix(words.second, " seconds"), &keeper.save_checkpoint_seconds))
      return absl::InternalError(absl::StrCat("when to save checkpoints: '", *first, "'"));
    return true;
  }

  Status AddCheckpoints(CheckpointOptions options) {
    options.names = names_;
    RETURN_IF_ERROR(MakeValues([](const std::string&) { return true; }));
    if (options.writes) RETURN_IF_ERROR(WithExitCode(MakeFolders(options.keeper.directory), kExitStorage));
    options.job = spec_.name;
    options.seed = spec_.options.seed;
    options.plan = PlanText(decisions_);
    options.recipe_hash = spec_.recipe_hash;
    options.graph_hash = absl::StrFormat("%016x", Fingerprint(spec_.graph->graph));
    options.keep_best = eval_hook_ != nullptr;
    ASSIGN_OR_RETURN(auto hook,
                     WithExitCode(CheckpointHook::Create(options, &session_.state().store, trainer_.get(), PrintNote),
                                  kExitStorage));
    checkpoint_hook_ = Add(std::move(hook));
    if (eval_hook_ != nullptr) eval_hook_->OnBest([this](const TrainState& s) { checkpoint_hook_->SaveBest(s); });
    return absl::OkStatus();
  }

  void PrintPlan() const {
    if (!session_.prints) return;
    const PlanReport& plan = executable_->report();
    std::fprintf(stderr, "mslua: %s: %lld nodes in %lld kernels, %.1f MiB of activations%s, compiled in %.2f s%s%s\n",
                 spec_.name.c_str(), static_cast<long long>(plan.nodes), static_cast<long long>(plan.kernels),
                 static_cast<double>(plan.workspace_bytes + plan.shared_bytes) / (1 << 20),
                 DeviceText(session_).c_str(), plan.compile_seconds, folder_.empty() ? "" : "; run folder ",
                 folder_.c_str());
  }

  // Says so where the checkpoint is of the end of training.
  void NoteNothingLeft() {
    const TrainState& s = trainer_->state();
    const bool steps = spec_.options.max_steps > 0 && s.step >= spec_.options.max_steps;
    // A checkpoint of an epoch's last step is of before its end.
    const int64_t epochs = s.epoch + s.step_in_epoch / progress().steps_per_epoch;
    if (epochs < spec_.options.epochs && !steps) return;
    std::fprintf(stderr, "mslua: note: nothing is left to train: the checkpoint is of step %lld, the end of %s %lld\n",
                 static_cast<long long>(s.step), steps ? "max_steps =" : "epochs =",
                 static_cast<long long>(steps ? spec_.options.max_steps : spec_.options.epochs));
  }

  // What clients of `mslua attach` talk to, on all ranks or on none: training does without.
  Status OpenEndpoint() {
    if (OptionInt(L_, "no_attach") != 0) return absl::OkStatus();
    if (together() != nullptr && session_.job == nullptr) return absl::OkStatus();  // threads of a test
    endpoint::TrainingView view = View();
    Status status;
    if (view.ranks > 1 && !view.tell) {
      status = absl::FailedPreconditionError(
          "the ranks of several hosts have no control connections (MSLUA_PLAINTEXT=1 allows them on a trusted "
          "network)");
    }
    endpoint::Job job;
    if (status.ok() && first()) {
      auto made = endpoint::Endpoint::MakeJob(view);
      status = made.status();
      if (made.ok()) job = *std::move(made);
    }
    if (together() != nullptr) {
      ASSIGN_OR_RETURN(const auto folders, GatherTexts(*together(), job.folder, "the folder of the endpoints"));
      job.folder = folders[0];
    }
    if (status.ok() && !job.folder.empty()) {
      auto opened = endpoint::Endpoint::Open(std::move(view), job);
      status = opened.status();
      if (opened.ok()) endpoint_ = *std::move(opened);
    }
    bool everywhere = endpoint_ != nullptr;
    if (together() != nullptr) {
      ASSIGN_OR_RETURN(const int32_t closed, LargestOfRanks(*together(), everywhere ? 0 : 1, "opening the endpoints"));
      everywhere = closed == 0;
    }
    if (everywhere)
      endpoint_->Serve();
    else
      endpoint_.reset();
    if (!status.ok())
      std::fprintf(stderr, "mslua: note: nobody can attach: %s\n", std::string(status.message()).c_str());
    return absl::OkStatus();
  }

  // Of what this rank's store has under `name`.
  endpoint::TensorPlace PlaceOf(const std::string& name) const {
    endpoint::TensorPlace place;
    if (const GlobalView* view = session_.state().view.get()) {
      if (const GlobalView::Part* part = view->Find(name)) {
        place.whole = part->whole.shape;
        place.begin = part->begin;
        place.layout = part->layout.ToString();
      }
      return place;
    }
    const auto found = parts_.find(name);
    if (found == parts_.end()) return place;
    place.own = found->second.own || found->second.varies;
    if (found->second.whole == 0) return place;
    place.whole = {found->second.whole};
    place.begin = {found->second.begin};
    return place;
  }

  endpoint::TrainingView View() {
    endpoint::TrainingView view;
    view.name = spec_.name;
    view.folder = folder_;
    view.rank = together() == nullptr ? 0 : together()->rank();
    view.ranks = together() == nullptr ? 1 : static_cast<int>(together()->size());
    view.trainer = trainer_.get();
    view.thread = pthread_self();
    const LuaWhereabouts& running = WhereaboutsOf(L_);
    view.lua_at = [&running] { return ToString(running); };
    view.lua_stack = [&running, L = L_, thread = view.thread] { return AskLuaStack(L, running, thread); };
    if (together() != nullptr) {
      view.gather = [this](const std::string& mine) {
        return GatherTexts(*together(), mine, "a command of mslua attach");
      };
    }
    if (Membership* const members = together() == nullptr ? nullptr : session_.job->membership()) {
      view.tell = [members](int rank, const endpoint::RankMessage& m) { members->Tell(rank, m); };
      view.listen = [members](std::function<void(int, const endpoint::RankMessage&)> f) {
        members->Listen(std::move(f));
      };
    }
    if (together() != nullptr) {
      view.calls = [&recorder = together()->world().recorder()](int most) { return recorder.Last(most); };
      view.place = [this](const std::string& name) { return PlaceOf(name); };
    }
    view.health = &health_;
    view.store = &session_.state().store;
    view.compile = [this](const Graph& graph) {
      CompileOptions options;
      options.rank = session_.state().rank;
      options.optimize = false;
      options.device = session_.device;
      return CompileShared(session_, graph, options);
    };
    view.print = [this](const std::string& line) {
      if (!line.empty()) console_->Line(line);
      console_->Flush();
    };
    if (checkpoint_hook_ != nullptr) {
      view.save = [this](const std::string& name) { return checkpoint_hook_->SaveNow(trainer_->state(), name); };
      view.skip_last_save = [this] { checkpoint_hook_->SkipLast(); };
    }
    if (eval_hook_ != nullptr) {
      view.evaluate = [this] {
        const TrainState& s = trainer_->state();
        return eval_hook_->Now(s, s.step_in_epoch > 0 ? s.epoch + 1 : std::max<int64_t>(1, s.epoch));
      };
    }
    return view;
  }

  // Removes the run folder that this run made where it has not made one step.
  void RemoveUnusedFolder() {
    if (!new_folder_ || (trainer_ != nullptr && trainer_->state().step > restored_.step)) return;
    hooks_.clear();
    console_.reset();
    lock_.reset();
    RemoveAtomically(folder_).IgnoreError();
  }

  StatusOr<double> Finish(Status outcome) {
    endpoint_.reset();
    progress().trainer = nullptr;
    progress().console = nullptr;
    progress().metrics = nullptr;
    if (outcome.ok() && lua_hook_ != nullptr) outcome = lua_hook_->late();
    if (absl::IsCancelled(outcome) && progress().stopped) outcome = absl::OkStatus();
    if (absl::IsOutOfRange(outcome)) outcome = WithExitCode(outcome, kExitDiverged);
    if (absl::IsDataLoss(outcome)) outcome = WithExitCode(outcome, kExitData);
    const std::string path = checkpoint_hook_ == nullptr ? "" : checkpoint_hook_->last_path();
    if (!path.empty() && !checkpoint_hook_->saved() && (outcome.ok() || absl::IsCancelled(outcome))) {
      const Status unsaved =
          absl::UnavailableError(absl::StrCat(outcome.ok() ? "trained to" : "stopped at", " step ",
                                              trainer_->state().step, ", but its checkpoint was not saved: ", path));
      return WithExitCode(unsaved, kExitStorage);
    }
    if (absl::IsCancelled(outcome)) {
      const bool saved = !path.empty() || (!first() && spec_.has_checkpoint);
      // Who asks by SIGTERM starts again and continues; who presses Ctrl-C does not.
      const Status stopped = absl::CancelledError(
          absl::StrCat("stopped at step ", trainer_->state().step,
                       path.empty() ? "" : absl::StrCat("; saved ", path, ", --resume resumes from it")));
      return WithExitCode(stopped, saved && SignalScope::Signal() != SIGINT ? kExitCheckpointed : kExitInterrupted);
    }
    RETURN_IF_ERROR(outcome);
    if (first() && !RememberedFolder().empty()) unlink(RememberedFolder().c_str());
    // Closes the files of records.
    hooks_.clear();
    console_.reset();
    session_.records.Update(health_.outcome());
    const double* loss = progress().Find("loss");
    return loss == nullptr ? trainer_->state().loss : *loss;
  }

  TrainerSpec& spec_;
  Session& session_;
  lua_State* const L_;
  std::unique_ptr<data::Loader> loader_, eval_loader_;
  Decisions decisions_;  // of the training step's plan
  std::unique_ptr<Executable> executable_, eval_executable_;
  std::string resume_, folder_;
  std::string remembered_;                  // the run folder of the processes before this one; empty: not known
  bool new_folder_ = false, done_ = false;  // this run made the folder; trained to the end
  std::unique_ptr<FileLock> lock_;          // of the folder
  RecordHealth health_{PrintNote};
  std::unique_ptr<KeptTraining> kept_;
  TensorParts parts_;
  TensorNames names_;
  std::unique_ptr<Console> console_;
  std::unique_ptr<LossScaleHook> loss_scale_;
  std::unique_ptr<Trainer> trainer_;
  SharedCheckpoint resumed_;
  checkpoint::Checkpoint* checkpoint_ = nullptr;  // of `resumed_`: what this run resumes from; null: nothing
  TrainState restored_;
  double unsaved_ = 0;  // UnsavedDigest()
  std::unique_ptr<Evaluator> evaluator_;
  std::vector<std::unique_ptr<TrainHook>> hooks_;
  CheckpointHook* checkpoint_hook_ = nullptr;
  EvalHook* eval_hook_ = nullptr;
  PlateauHook* plateau_ = nullptr;
  LuaHook* lua_hook_ = nullptr;
  std::unique_ptr<endpoint::Endpoint> endpoint_;  // null: nobody can attach
};

}  // namespace

StatusOr<double> RunTraining(TrainerSpec* spec, Session& session) { return Training(spec, &session).Run(); }

Status ProfileTraining(TrainerSpec* spec, Session& session, int64_t steps, bool steps_only, bool json,
                       const std::string& trace) {
  return Training(spec, &session).Profile(steps, steps_only, json, trace);
}

}  // namespace mslua
