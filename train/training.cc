#include "train/training.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/atomic_file.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/base/hash.h"
#include "core/json/json_string.h"
#include "core/runtime/guard.h"
#include "core/runtime/profile.h"
#include "core/runtime/shaped_executable.h"
#include "core/step/prints.h"
#include "core/train/agreement.h"
#include "core/train/clip_hook.h"
#include "core/train/epoch_hook.h"
#include "core/train/event_file.h"
#include "core/train/status_line.h"
#include "core/train/step_losses_hook.h"
#include "core/train/step_numbers.h"
#include "core/train/summaries.h"
#include "train/attaching.h"
#include "train/compare_first_batch.h"
#include "train/fault_hook.h"
#include "train/notice.h"
#include "train/profile_hook.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/run_settings.h"
#include "train/save_agreement.h"
#include "train/saved_tensors.h"
#include "train/shared_step_hook.h"
#include "train/unsaved_values.h"

namespace mslua {
namespace {

// Says so where the parts that ranks have chosen by hand, number r that of rank r, are not one for each of them.
void NoteShards(const std::vector<data::Sharding>& shards) {
  const auto ranks = static_cast<int64_t>(shards.size());
  std::vector<bool> read(shards.size(), false);
  bool suits = true;
  std::string which;
  for (int64_t r = 0; r < ranks; ++r) {
    const data::Sharding& s = shards[static_cast<size_t>(r)];
    suits &= s.num_shards == ranks && !read[static_cast<size_t>(s.shard_id)];
    if (suits) read[static_cast<size_t>(s.shard_id)] = true;
    absl::StrAppend(&which, r > 0 ? "; " : "", "rank ", r, ": num_shards = ", s.num_shards,
                    ", shard_id = ", s.shard_id);
  }
  if (suits) return;
  PrintNote(absl::StrCat("the parts of the dataset are not one for each of ", ranks, " ranks (", which,
                         "), so that some samples are read by several ranks or by none: give num_shards = ", ranks,
                         ", shard_id = ms.communication.get_rank(), or leave both out"));
}

// FailedPrecondition where the ranks' seeds, number r that of rank r, differ and may not: `whole`: ranks that have
// parts of one network draw the same weights and the same dropout; ranks that share samples shuffle them alike.
Status CompareSeeds(Groups& groups, const TrainingData& data, bool whole, const std::vector<std::string>& seeds) {
  const auto other = std::find_if(seeds.begin(), seeds.end(), [&](const auto& seed) { return seed != seeds[0]; });
  if (other == seeds.end()) return absl::OkStatus();
  const std::string differ = absl::StrCat("rank ", other - seeds.begin(), " has the seed ", *other, ", rank 0 has ",
                                          seeds[0], ": give all ranks one seed, ");
  if (whole) {
    return absl::FailedPreconditionError(
        absl::StrCat(differ, "with which they make the same weights of one network, and read the same batches"));
  }
  data::Pipeline::Epoch epoch;
  data.pipeline->MakeEpoch(0, &epoch);
  const auto& samples = epoch.order.samples;
  const std::string order = absl::StrCat(Crc32c(samples.data(), samples.size() * sizeof(samples[0])));
  ASSIGN_OR_RETURN(const auto orders, GatherTexts(groups, order, "the orders of samples"));
  const bool same = std::all_of(orders.begin(), orders.end(), [&](const auto& text) { return text == orders[0]; });
  if (same || data.sharding.num_shards > 0 || data.repeated) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(differ,
                   "or num_shards and shard_id: ranks that shuffle the dataset differently would read some "
                   "samples twice, and others never"));
}

// Ranks that train together make as many steps of batches of one type: FailedPrecondition where they do not. A warning
// where they read different data all the same: their files may be of different versions.
Status CompareDatasets(Groups& groups, const TrainingData& data, bool whole) {
  std::string steps = absl::StrCat(data.pipeline->size(), " batches of");
  for (int64_t s = 0; s < data.pipeline->shapes(); ++s) {
    if (s > 0) absl::StrAppend(&steps, " or");
    for (const data::Column& c : data.pipeline->schema(s)) absl::StrAppend(&steps, " ", c.name, " ", ToString(c.type));
  }
  const std::string mine =
      absl::StrCat(steps, "\n", data.source, ", ", data.pipeline->source_size(), " samples\n", data.sharding.num_shards,
                   "\n", data.sharding.shard_id, "\n", data.pipeline->seed());
  ASSIGN_OR_RETURN(const auto all, GatherTexts(groups, mine, "the data sets"));
  const std::vector<std::string> first = absl::StrSplit(all[0], '\n');
  std::vector<data::Sharding> shards;
  std::vector<std::string> seeds;
  for (size_t r = 0; r < all.size(); ++r) {
    const std::vector<std::string> other = absl::StrSplit(all[r], '\n');
    seeds.push_back(other[4]);
    data::Sharding sharding;
    if (!absl::SimpleAtoi(other[2], &sharding.num_shards) || !absl::SimpleAtoi(other[3], &sharding.shard_id))
      return absl::InternalError(absl::StrCat("the dataset of rank ", r, ": ", all[r]));
    shards.push_back(sharding);
    if (other[0] == first[0] && other[1] == first[1]) continue;
    const std::string what = absl::StrCat("the data set of rank ", r, " (", other[1], ", ", other[0],
                                          ") is not that of rank 0 (", first[1], ", ", first[0], ")");
    if (other[0] != first[0]) {
      return absl::FailedPreconditionError(
          absl::StrCat(what,
                       "; ranks that train together make the same steps: give each as many samples, and the same "
                       "batch size"));
    }
    if (groups.rank() == 0) absl::FPrintF(stderr, "mslua: warning: %s\n", what);
  }
  // Ranks r, r + feeds, ... read the same rows.
  for (size_t r = static_cast<size_t>(data.feeds); whole && r < shards.size(); ++r) {
    const data::Sharding &a = shards[r % data.feeds], &b = shards[r];
    if (a.num_shards == b.num_shards && a.shard_id == b.shard_id) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", r, " reads a part of the dataset by num_shards = ", b.num_shards, ", shard_id = ", b.shard_id,
        " and rank ", r % data.feeds, " one by num_shards = ", a.num_shards, ", shard_id = ", a.shard_id,
        ", where both read the same batches: leave num_shards and shard_id out"));
  }
  if (groups.rank() == 0 && data.sharding.num_shards > 0 && data.feeds == groups.size()) NoteShards(shards);
  return CompareSeeds(groups, data, whole, seeds);
}

// Rows of a batch, on average over an epoch's batches.
double RowsOfBatch(const data::Pipeline& pipeline) {
  double rows = 0;
  for (int64_t s = 0; s < pipeline.shapes(); ++s) rows += pipeline.share(s) * static_cast<double>(pipeline.rows(s));
  return rows;
}

// Tokens of a batch of text, whose rows are ids, on average over an epoch's batches; 0: samples are something else.
double TokensOfBatch(const data::Pipeline& pipeline) {
  double tokens = 0;
  for (int64_t s = 0; s < pipeline.shapes(); ++s) {
    if (pipeline.schema(s).empty()) return 0;
    const TensorType& type = pipeline.schema(s)[0].type;
    const bool text = type.rank() == 2 && (type.dtype == DType::kI32 || type.dtype == DType::kI64);
    if (text) tokens += pipeline.share(s) * static_cast<double>(type.elements());
  }
  return tokens;
}

// The output of that name; -1: there is none.
int FindOutput(const Graph& graph, const char* name) {
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    if (graph.outputs[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

Training::~Training() {
  // A run folder in which not one step was made.
  if (done_ || (trainer_ != nullptr && trainer_->state().step > resuming_.state().step)) return;
  hooks_.clear();
  console_.reset();
  directory_.RemoveIfNew();
}

StatusOr<double> Training::Run() {
  auto loss = TrainToEnd();
  done_ = loss.ok();
  // A training that fails early has not placed its trainer yet.
  const int64_t step = trainer_ == nullptr ? 0 : trainer_->state().step;
  Status outcome = loss.status();
  if (!outcome.ok() && rank_.job != nullptr) {
    const Status first = rank_.job->first_cause(together());
    if (!first.ok()) outcome = first;
  }
  directory_.RecordOutcome(outcome, std::max(step, resuming_.state().step));
  return loss;
}

Status Training::Profile(int64_t steps, bool steps_only, bool json, const std::string& trace) {
  spec_.options.check_loss = false;  // random data may diverge
  RETURN_IF_ERROR(Prepare());
  RETURN_IF_ERROR(MakeTrainer());
  if (data_.pipeline->shapes() > 1) {
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            "prof: batches of the dataset have ", data_.pipeline->shapes(),
                            " shapes, and a profile is of one: give bucket_batch_by_length one bucket for it")),
                        kExitUsage);
  }
  const auto step = [this]() -> Status {
    ASSIGN_OR_RETURN(const bool made, trainer_->Step());
    return made ? absl::OkStatus() : trainer_->Step().status();  // past an epoch's end
  };
  const Status status = ReportProfile(executable_.get(), step, steps, steps_only, json, trace);
  progress() = Progress();
  return status;
}

// That ranks begin with the same values of what they have alike, or have parts of.
Status Training::CompareStart() {
  if (!spec_.graph->sharded) return CompareParameters(*rank_.state, *spec_.graph);
  return CompareShardedParameters(*rank_.state, spec_.parameters, resuming_.checkpoint() != nullptr);
}

StatusOr<double> Training::TrainToEnd() {
  RETURN_IF_ERROR(Prepare());
  // Before the records: a checkpoint that does not fit leaves the run folder as it is.
  RETURN_IF_ERROR(resuming_.Restore(names_, parts_, GlobalRows(), progress().steps_per_epoch));
  RETURN_IF_ERROR(MakeTrainer());
  RETURN_IF_ERROR(AddHooks());
  if (spec_.broadcast && !resuming_.from_memory())
    RETURN_IF_ERROR(BroadcastParameters(*rank_.state, *spec_.graph, resuming_.checkpoint() != nullptr));
  else if (together() != nullptr && !resuming_.from_memory())
    RETURN_IF_ERROR(WithExitCode(CompareStart(), kExitHang));
  RETURN_IF_ERROR(resuming_.PlaceTrainer(trainer_.get()));
  if (resuming_.checkpoint() != nullptr && progress().metrics != nullptr)
    progress().metrics->events()->Add(RestartEvent(trainer_->state().step + 1, WallTime()));
  RETURN_IF_ERROR(KeepTurns());
  RETURN_IF_ERROR(WithExitCode(AddFault(), kExitUsage));
  resuming_.RecordRecovery(trainer_->state().step);
  if (first()) PrintPlan();
  const std::string nothing = resuming_.checkpoint() == nullptr ? "" : NothingLeft();
  if (first() && !nothing.empty()) PrintNote(nothing);
  if (progress().metrics != nullptr) RETURN_IF_ERROR(WithExitCode(RecordConfig(!nothing.empty()), kExitStorage));
  ASSIGN_OR_RETURN(endpoint_, OpenEndpoint(spec_, rank_, View()));
  Status outcome;
  {
    const SignalScope signals([this] { trainer_->RequestStop(); }, SignalConsole());
    outcome = trainer_->Run();
    *spec_.history = trainer_->history();
  }
  return Finish(std::move(outcome));
}

// Who tells a user that a signal has come. Of several ranks the first one, where nobody else does.
SignalScope::Console Training::SignalConsole() const {
  using Console = SignalScope::Console;
  if (rank_.job == nullptr) return Console::kOwn;
  const auto source = rank_.job->identity().source;
  if (source == Identity::Source::kMpi) return Console::kMpirun;
  return source == Identity::Source::kLauncher || !rank_.prints ? Console::kLauncher : Console::kOwn;
}

Status Training::OpenData() {
  ASSIGN_OR_RETURN(data_, spec_.open());
  loader_ = std::make_unique<data::Loader>(data_.pipeline, data_.loader);
  progress().epochs = spec_.options.epochs;
  progress().steps_per_epoch = data_.pipeline->size();
  if (data_.pipeline->size() == 0) return absl::InvalidArgumentError("train: the dataset has no whole batch");
  const bool whole = spec_.graph->sharded;
  if (together() != nullptr) RETURN_IF_ERROR(WithExitCode(CompareDatasets(*together(), data_, whole), kExitHang));
  return absl::OkStatus();
}

Status Training::Prepare() {
  progress() = Progress();
  RETURN_IF_ERROR(CheckHistograms());
  RETURN_IF_ERROR(OpenData());
  RETURN_IF_ERROR(resuming_.Find());
  std::vector<const Graph*> graphs;
  for (const StepGraph* shape : spec_.graph->shapes()) graphs.push_back(&shape->graph);
  ASSIGN_OR_RETURN(machine_, rank_.machine());
  ASSIGN_OR_RETURN(decisions_,
                   DecidePlan(graphs, rank_.dumps, rank_.flags.tune, together(), resuming_.SavedPlan(), machine_));
  ASSIGN_OR_RETURN(executable_, rank_.compile(*spec_.graph, together() != nullptr, &decisions_));
  parts_ = PartsOf(*rank_.state, *spec_.graph, together() != nullptr);
  names_ = NamesOf(*rank_.state, spec_);
  if (together() != nullptr) RETURN_IF_ERROR(WithExitCode(ComparePrograms(), kExitHang));
  if (data_.divided && rank_.state->rank == 0) {
    std::string rows;
    for (int64_t s = 0; s < data_.pipeline->shapes(); ++s) {
      const int64_t own = data_.pipeline->rows(s);
      absl::StrAppend(&rows, s > 0 ? " or " : "", own * data_.feeds, " = ", own, " x ", data_.feeds);
    }
    absl::FPrintF(stderr, "mslua: global batch %s feeds\n", rows);
  } else if (data_.repeated && rank_.state->rank == 0) {
    PrintNote(
        "GeneratorDataset: every rank runs the iterator whole, so that all see the same samples unless it looks at "
        "ms.communication.get_rank(); function(i) with length is shared among the ranks");
  }
  return absl::OkStatus();
}

Status Training::MakeTrainer() {
  RETURN_IF_ERROR(WithExitCode(OpenRecords(), kExitStorage));
  progress().console = console_.get();
  ASSIGN_OR_RETURN(std::vector<ScheduledScalar> scalars, Scalars());
  TrainerOptions options = spec_.options;
  options.rows = GlobalRows();
  options.ema = spec_.graph->ema;
  if (together() != nullptr) options.agree = [this](bool stop) { return AgreeToStop(stop); };
  if (spec_.graph->sharded && !resuming_.from_memory()) CompareFirstBatch(*together(), data_, loader_.get());
  options.done = [this] { return progress().stopped; };
  ASSIGN_OR_RETURN(trainer_,
                   Trainer::Create(executable_.get(), loader_.get(), std::move(scalars), options, console_.get()));
  progress().trainer = trainer_.get();
  ReportCrashes();
  return absl::OkStatus();
}

void Training::ReportCrashes() {
  if (rank_.job == nullptr || directory_.path().empty()) return;
  crash_file_ = rank_.job->ReportCrashes(absl::StrCat(directory_.path(), "/rank_", rank_.state->rank, kRunCrash),
                                         &trainer_->progress().step);
}

// Whether all ranks make the same step.
Status Training::ComparePrograms() const {
  const std::string schedule = ScheduleText(spec_);
  for (const StepGraph* shape : spec_.graph->shapes())
    RETURN_IF_ERROR(CompareTexts(*together(), absl::StrCat(shape->common, schedule), "a training step"));
  return CompareCollectives(executable_.get());
}

// Whether a program of all ranks, or of their parts, has the same collectives on each of them.
Status Training::CompareCollectives(const Executable* program) const {
  const ShapedExecutable* const shaped = ShapedOf(program);
  if (shaped == nullptr) return CompareSchedules(*together(), program->graph());
  for (int64_t s = 0; s < shaped->shapes(); ++s)
    RETURN_IF_ERROR(CompareSchedules(*together(), shaped->plan(s).graph()));
  return absl::OkStatus();
}

// The run folder, and the log of this rank in it.
Status Training::OpenRecords() {
  if (directory_.path().empty()) {
    RETURN_IF_ERROR(directory_.Find(resuming_.from()));
    RETURN_IF_ERROR(directory_.Take());
  }
  RETURN_IF_ERROR(resuming_.RememberFolder());
  RunDirectory::Beginning beginning;
  if (resuming_.checkpoint() != nullptr) beginning.run = &resuming_.checkpoint()->manifest().run;
  beginning.kept = resuming_.from_memory();
  beginning.same_job = resuming_.SameFolder();
  RETURN_IF_ERROR(directory_.SettleEarlierRecords(beginning));
  RETURN_IF_ERROR(directory_.RecordLaunch());
  Console::Options options;
  options.log_every = !FindStepLosses(*executable_).empty() ? 0 : spec_.log_every;  // StepLossesHook prints them
  options.enabled = rank_.prints && !rank_.flags.json;                              // whose lines are objects
  options.prefix = rank_.prefix;
  if (!directory_.path().empty())
    options.log_path = absl::StrCat(directory_.path(), "/rank_", rank_.state->rank, ".log");
  if (rank_.job != nullptr) rank_.job->LogTo(options.log_path);
  options.health = &health_;
  console_ = std::make_unique<Console>(options);
  return console_->opened();
}

// A callback's wish to stop ends the training as done on every rank, a request breaks it off; what somebody wanted to
// pause at pauses all ranks where one of them has it.
StatusOr<bool> Training::AgreeToStop(bool stop) {
  // Between: the number of a break. From kBreakOff on: what SignalScope::Request says.
  constexpr int32_t kGoOn = 0, kDone = 1 << 20, kBreakOff = kDone + 1;
  const int32_t hit = endpoint_ == nullptr ? kGoOn : endpoint_->boundary().BreakHit(trainer_->state());
  const int32_t mine = !stop ? hit : progress().stopped ? kDone : kBreakOff + SignalScope::Request();
  // Of the paces the smallest: a rank for which all the others have waited has seen a shorter step than they.
  std::array<int32_t, 2> wishes = {mine, -static_cast<int32_t>(resuming_.kept().pace())};
  RETURN_IF_ERROR(LargestOfRanks(*together(), absl::MakeSpan(wishes), "the end of a step"));
  const int32_t wish = wishes[0];
  resuming_.kept().AgreeOn(-wishes[1]);
  progress().stopped = wish == kDone;
  if (wish >= kBreakOff) SignalScope::Heed(wish - kBreakOff);
  if (wish > kGoOn && wish < kDone) {
    if (endpoint_ == nullptr) return absl::InternalError("another rank pauses, but nobody can attach to this one");
    RETURN_IF_ERROR(endpoint_->boundary().PauseNext(trainer_->state(), wish));
  }
  return wish >= kDone;
}

StatusOr<std::vector<ScheduledScalar>> Training::Scalars() {
  std::vector<ScheduledScalar> scalars;
  for (const RateSpec& rate : spec_.rates) {
    ScheduledScalar scalar;
    scalar.input = rate.input;
    scalar.schedule = rate.schedule;
    scalar.is_rate = true;
    if (rate.function) scalar.user = [this, &rate](int64_t step) { return RateOf(rate, step); };
    scalars.push_back(std::move(scalar));
  }
  if (spec_.loss_scale_kind.empty()) return scalars;
  const int finite = FindOutput(spec_.graph->graph, "finite");
  if (finite < 0) return absl::InvalidArgumentError("trainer: loss_scale needs a graph built with loss_scale = true");
  loss_scale_ = std::make_unique<LossScaleHook>(&progress(), finite, spec_.loss_scale, spec_.loss_scale_factor,
                                                spec_.loss_scale_window, spec_.loss_scale_kind == "dynamic");
  scalars.emplace_back();
  scalars.back().input = "loss_scale";
  scalars.back().user = [this](int64_t) -> StatusOr<double> { return loss_scale_->scale(); };
  return scalars;
}

// Ranks that train together have the rate of rank 0's function: it may follow from a loss, of which each has its own.
StatusOr<double> Training::RateOf(const RateSpec& rate, int64_t step) {
  ASSIGN_OR_RETURN(double value, rate.function(step, trainer_->state().epoch + 1));
  if (together() != nullptr) RETURN_IF_ERROR(ShareNumber(*together(), &value, "the learning rate"));
  return value;
}

template <typename Hook>
Hook* Training::Add(std::unique_ptr<Hook> hook) {
  Hook* const h = hook.get();
  trainer_->AddHook(h);
  hooks_.push_back(std::move(hook));
  return h;
}

Status Training::AddHooks() {
  progress().planned.clear();  // of an earlier training of this specification
  Add(std::make_unique<EpochHook>(&progress(), spec_.time_every, spec_.time_steps, spec_.log_epochs));
  if (!FindStepLosses(*executable_).empty()) Add(std::make_unique<StepLossesHook>(&progress(), spec_.log_every));
  if (loss_scale_ != nullptr) trainer_->AddHook(loss_scale_.get());
  if (spec_.graph->clips_norm && HasGradNorm(*executable_))  // of several pipeline stages, not all have it
    Add(std::make_unique<ClipHook>(&progress(), FindOutput(spec_.graph->graph, "finite")));
  if (UpdatesUnsaved(*rank_.state, spec_.graph->graph, spec_.parameters)) {
    Add(std::make_unique<UnsavedHook>([this]() -> StatusOr<double> {
      ASSIGN_OR_RETURN(const double now,
                       DigestOfUnsaved(*rank_.state, spec_.parameters, spec_.parameter_names, /*together=*/nullptr));
      return now == 0 ? -1 : -now;
    }));
  } else if (resuming_.unsaved() != 0) {
    // Frozen ones may be many and large: their digest is computed once.
    Add(std::make_unique<UnsavedHook>([this] { return resuming_.unsaved(); }));
  }
  if (rank_.job != nullptr) {
    ASSIGN_OR_RETURN(auto step, rank_.job->shared_step());
    if (step != nullptr) Add(std::make_unique<SharedStepHook>(std::move(step)));
  }
  // These read tensors of the step, such as gradients, whose memory the evaluation writes over.
  if (!FindPrints(spec_.graph->graph).empty()) Add(std::make_unique<PrintHook>(&progress(), rank_.prefix));
  if (!directory_.path().empty() && first()) {
    ASSIGN_OR_RETURN(auto metrics, WithExitCode(MakeMetrics(), kExitStorage));
    Add(std::move(metrics));
    RETURN_IF_ERROR(AddSummaries());
  }
  if (spec_.has_eval) RETURN_IF_ERROR(AddEvaluation());
  AddStatusLine();
  AddWatchers();
  RETURN_IF_ERROR(AddCheckpoints());
  if (!rank_.flags.profile.empty()) RETURN_IF_ERROR(AddProfile());
  if (auto hook = spec_.user_hook ? spec_.user_hook(&progress()) : nullptr) {
    user_hook_ = Add(std::move(hook));
    user_hook_->InFolder(directory_.path());
  }
  return absl::OkStatus();
}

// --profile S:N
Status Training::AddProfile() {
  ASSIGN_OR_RETURN(const ProfiledSteps steps, ParseProfiledSteps(rank_.flags.profile));
  if (first() && directory_.path().empty())
    return absl::InvalidArgumentError("--profile: this run has no folder to write a trace to");
  endpoint::TrainingView view = View();
  ConnectRanks(spec_, rank_, &view);
  Add(std::make_unique<ProfileHook>(&progress(), steps, view.rank, directory_.path(), view.gather));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<MetricsHook>> Training::MakeMetrics() {
  const MetricsOptions options{directory_.path(), std::max<int64_t>(1, progress().steps_per_epoch / 100),
                               spec_.metrics_limit, RowsOfBatch(*data_.pipeline) * Parts()};
  ASSIGN_OR_RETURN(auto metrics, MetricsHook::Create(options, trainer_.get(), &health_));
  progress().metrics = metrics.get();
  return metrics;
}

// What is trained with, in the run folder. A training that makes no step leaves what is there: the steps were made with
// that.
Status Training::RecordConfig(bool no_step) const {
  const bool there = access(absl::StrCat(directory_.path(), "/", kRunConfig).c_str(), F_OK) == 0;
  if (spec_.config.empty() || (no_step && there)) return absl::OkStatus();
  return WriteConfig(directory_.path(), spec_.config);
}

// On the rank that records, behind the metrics, whose events they share.
Status Training::AddSummaries() {
  ASSIGN_OR_RETURN(auto made, WithExitCode(Summaries::Create(directory_.path(), progress().metrics->events(),
                                                             trainer_.get(), &health_, PrintNote),
                                           kExitStorage));
  progress().summaries = Add(std::move(made));
  if (spec_.histograms.every == 0) return absl::OkStatus();
  std::vector<std::pair<std::string, std::string>> names;
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    const ParameterData& p = *spec_.parameters[i];
    if (p.kind == kParameter && p.requires_grad) names.emplace_back(spec_.parameter_names[i], p.key);
  }
  Add(std::make_unique<HistogramsHook>(&progress(), &rank_.state->store, std::move(names), spec_.histograms));
  return absl::OkStatus();
}

// A rank with parts of the parameters does not know how all of their values are distributed.
Status Training::CheckHistograms() const {
  if (spec_.histograms.every == 0 || together() == nullptr) return absl::OkStatus();
  for (const auto& p : spec_.parameters) {
    if (!spec_.graph->sharded && !p->layerwise_parallel) continue;
    return absl::InvalidArgumentError(
        "histograms: each rank has a part of the parameters here (semi_auto_parallel, auto_parallel, pipeline stages "
        "or layerwise_parallel): leave histograms out, or train data parallel");
  }
  return absl::OkStatus();
}

Status Training::AddEvaluation() {
  const EvaluationSpec& eval = spec_.eval;
  ASSIGN_OR_RETURN(const TrainingData data, eval.open());
  eval_loader_ = std::make_unique<data::Loader>(data.pipeline, data.loader);
  if (eval.graph->sharded && !resuming_.from_memory()) CompareFirstBatch(*together(), data, eval_loader_.get());
  ASSIGN_OR_RETURN(eval_executable_, rank_.compile(*eval.graph, /*share=*/false, &decisions_));
  if (eval.graph->sharded) RETURN_IF_ERROR(WithExitCode(CompareCollectives(eval_executable_.get()), kExitHang));
  ASSIGN_OR_RETURN(auto varying, VaryingOf(*rank_.state, *eval.graph));
  Groups* const sums_over = eval.graph->sharded ? nullptr : together();
  ASSIGN_OR_RETURN(evaluator_, Evaluator::Create(eval_executable_.get(), eval_loader_.get(), sums_over,
                                                 &rank_.state->store, std::move(varying)));
  eval_hook_ =
      Add(std::make_unique<EvalHook>(&progress(), evaluator_.get(), eval.metrics, eval.every_epochs, eval.every_steps));
  if (eval.finish) {
    eval_hook_->FinishBy([this](const auto& sums, int64_t samples) -> StatusOr<Numbers> {
      ASSIGN_OR_RETURN(FinishedMetrics finished, spec_.eval.finish(sums, samples));
      RecordMatrices(finished);
      return std::move(finished.values);
    });
  }
  if (!directory_.path().empty()) {
    evaluator_->KeepWorst(eval.samples);
    const auto& labels = eval.labels.empty() ? data.pipeline->class_names() : eval.labels;
    eval_hook_->OnEvaluated([this, labels] { RecordSamples(labels); });
  }
  if (rank_.flags.few_steps) eval_hook_->SkipLast();
  if (const double flops = FlopsOf(*executable_); flops > 0)
    eval_hook_->Expect(FlopsOf(*eval_executable_) * static_cast<double>(data.pipeline->size()) / flops);
  return absl::OkStatus();
}

// eval_samples.json: the worst samples of the newest evaluation.
void Training::RecordSamples(const std::vector<std::string>& labels) const {
  if (!first() || evaluator_->worst().empty()) return;
  const Json record = {{"step", trainer_->state().step}, {"labels", labels}, {"samples", evaluator_->worst()}};
  const Status written =
      WriteFileAtomically(absl::StrCat(directory_.path(), "/", kRunSamples), DumpJson(record) + "\n");
  if (!written.ok())
    PrintNote(absl::StrCat("the worst samples of an evaluation are not recorded: ", written.message()));
}

// eval.json: the matrices of the newest evaluation.
void Training::RecordMatrices(const FinishedMetrics& finished) const {
  if (finished.matrices.empty() || directory_.path().empty() || !first()) return;
  const auto quoted = [](std::string* out, const std::string& label) { absl::StrAppend(out, JsonString(label)); };
  const auto member = [](std::string* out, const auto& m) { absl::StrAppend(out, JsonString(m.first), ":", m.second); };
  const std::string text =
      absl::StrCat("{\"step\":", trainer_->state().step, ",\"labels\":[", absl::StrJoin(spec_.eval.labels, ",", quoted),
                   "],\"matrices\":{", absl::StrJoin(finished.matrices, ",", member), "}}\n");
  const Status written = WriteFileAtomically(absl::StrCat(directory_.path(), "/", kRunMatrices), text);
  if (!written.ok()) PrintNote(absl::StrCat("the matrices of an evaluation are not recorded: ", written.message()));
}

// The live line of a terminal (--progress).
void Training::AddStatusLine() {
  const std::string& wanted = rank_.flags.progress;
  const char* const term = std::getenv("TERM");
  const bool terminal =
      isatty(STDERR_FILENO) != 0 && term != nullptr && *term != 0 && absl::string_view(term) != "dumb";
  const bool speaks = first() && rank_.prints && !rank_.flags.json;
  if (!speaks || wanted == "off" || (!terminal && wanted != "on")) return;
  StatusLine::Options options;
  options.style = terminal ? StatusLine::Options::Style::kTerminal : StatusLine::Options::Style::kLines;
  options.rows = RowsOfBatch(*data_.pipeline) * Parts();
  options.tokens = TokensOfBatch(*data_.pipeline) * Parts();
  options.max_steps = spec_.options.max_steps;
  options.peak_flops = rank_.flags.peak_flops;
  Add(std::make_unique<StatusLine>(&progress(), options));
}

Status Training::AddCheckpoints() {
  CheckpointOptions options = spec_.checkpoint;
  options.keeper.directory = resuming_.CheckpointDirectory();
  RETURN_IF_ERROR(resuming_.kept().FinishSave(spec_.companions, PrintNote));
  if (resuming_.checkpoint() != nullptr) options.resumed_from = resuming_.checkpoint()->path();
  if (resuming_.from_memory() || resuming_.moved())
    options.resumed_from = resuming_.NewestSaved(options.keeper.directory);
  bool saves = spec_.has_checkpoint && !(directory_.path().empty() && spec_.checkpoint_directory.empty());
  if (together() != nullptr) {
    const bool own_losses = (spec_.early_stopping && WatchesOwnLosses(*spec_.early_stopping)) ||
                            (spec_.plateau && WatchesOwnLosses(*spec_.plateau));
    ASSIGN_OR_RETURN(saves, AgreeOnSaving(*together(), saves, parts_, own_losses, rank_.state->rank, &options));
    if (options.lineage) lineage_ = options.lineage->run;
  }
  if (!saves) return absl::OkStatus();
  if (first() && !directory_.path().empty())
    RETURN_IF_ERROR(
        WithExitCode(RecordCheckpointDirectory(directory_.path(), spec_.checkpoint_directory), kExitStorage));
  options.names = names_;
  RETURN_IF_ERROR(MakeValues(*rank_.state, spec_, [](const std::string&) { return true; }));
  if (options.writes) RETURN_IF_ERROR(WithExitCode(MakeFolders(options.keeper.directory), kExitStorage));
  options.job = spec_.name;
  options.seed = spec_.options.seed;
  options.plan = PlanText(decisions_, machine_);
  options.recipe_hash = spec_.recipe_hash;
  options.graph_hash = absl::StrFormat("%016x", Fingerprint(spec_.graph->graph));
  options.keep_best = eval_hook_ != nullptr;
  options.recovers = rank_.job != nullptr && !rank_.job->identity().recovery.empty();
  options.keep_unfinished = resuming_.kept().keep_unfinished();
  options.write_records = [this] {
    console_->Flush();
    health_.FlushAll();
    if (progress().summaries != nullptr) progress().summaries->WriteThrough();
  };
  ASSIGN_OR_RETURN(
      auto hook,
      WithExitCode(CheckpointHook::Create(options, &rank_.state->store, trainer_.get(), PrintNote), kExitStorage));
  hook->SetCompanions(spec_.companions);
  if (together() == nullptr) lineage_ = hook->lineage().run;
  progress().planned.push_back(&hook->planned());
  checkpoint_hook_ = Add(std::move(hook));
  if (eval_hook_ != nullptr) eval_hook_->OnBest([this] { checkpoint_hook_->BestIsDue(); });
  return absl::OkStatus();
}

// Data parallel ranks have a loss each, of their rows.
bool Training::WatchesOwnLosses(const TrainingSpec::Watch& watch) const {
  return together() != nullptr && !spec_.graph->sharded && !absl::StartsWith(watch.monitor, "eval_");
}

Monitor Training::MonitorOf(const TrainingSpec::Watch& watch, const char* owner, const char* key) {
  Monitor::Mean mean;
  if (WatchesOwnLosses(watch)) {
    mean = [this](double mine) -> StatusOr<double> {
      RETURN_IF_ERROR(SumOverRanks(*together(), absl::MakeSpan(&mine, 1), "the loss that is watched"));
      return mine / together()->size();
    };
  }
  return Monitor(&progress(), watch.monitor, spec_.has_eval, watch.min_delta, watch.mode == "min", owner, key,
                 std::move(mean));
}

// They decide by rank 0's values of evaluations, which a checkpoint remembers.
void Training::AddWatchers() {
  // The others stop when the first rank does.
  if (spec_.early_stopping && (first() || WatchesOwnLosses(*spec_.early_stopping))) {
    early_stopping_ = Add(std::make_unique<EarlyStoppingHook>(
        &progress(), MonitorOf(*spec_.early_stopping, "EarlyStopping", EarlyStoppingHook::kKey),
        spec_.early_stopping->patience));
  }
  if (!spec_.plateau) return;
  PlateauHook::Share share;  // the rate is one number on all ranks
  if (together() != nullptr) {
    share = [this](double mine) -> StatusOr<double> {
      double of_first = first() ? mine : 0;
      RETURN_IF_ERROR(SumOverRanks(*together(), absl::MakeSpan(&of_first, 1), "the learning rate's scale"));
      return of_first;
    };
  }
  Add(std::make_unique<PlateauHook>(&progress(), MonitorOf(*spec_.plateau, "ReduceLROnPlateau", PlateauHook::kKey),
                                    spec_.plateau_options, std::move(share)));
}

Status Training::KeepTurns() {
  KeptTraining::Keeping keeping;
  keeping.store = &rank_.state->store;
  for (const GraphOutput& o : executable_->graph().outputs) {
    if (!o.updates.empty()) keeping.updated.insert(o.updates);
  }
  keeping.names = names_;
  keeping.parts = parts_;
  keeping.progress = &progress();
  keeping.health = &health_;
  keeping.notice = PrintNote;
  RETURN_IF_ERROR(resuming_.KeepTurns(PlanText(decisions_, machine_), lineage_, keeping));
  if (resuming_.kept().record().stopped) progress().Stop();
  return absl::OkStatus();
}

// MSLUA_FAULT
Status Training::AddFault() {
  const char* const asked = std::getenv("MSLUA_FAULT");
  if (asked == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Fault fault, ParseFault(asked));
  const int ranks = rank_.job == nullptr ? 1 : rank_.job->size();
  const bool started_again = rank_.job != nullptr && rank_.job->epoch() > 1;  // maybe on fewer ranks
  if (fault.rank >= ranks && !started_again)
    return absl::InvalidArgumentError(absl::StrCat("MSLUA_FAULT: there is no rank ", fault.rank, " of ", ranks));
  Store& store = rank_.state->store;
  const bool scribbles = fault.kind == Fault::Kind::kScribble;
  if (scribbles && store.image() == nullptr) {
    return absl::InvalidArgumentError(
        "MSLUA_FAULT: scribble is for a job that resumes from memory: --recover, mslua again, MS_ENABLE_RECOVERY=1");
  }
  if (scribbles && GuardsMemory()) {
    return absl::InvalidArgumentError(
        "MSLUA_FAULT: scribble is for the memory that a job resumes from, which is not protected where "
        "MSLUA_GUARD_MEMORY guards tensors: leave one of them out");
  }
  if (fault.rank == rank_.state->rank && !(scribbles && started_again)) Add(std::make_unique<FaultHook>(fault, &store));
  return absl::OkStatus();
}

void Training::PrintPlan() const {
  if (!rank_.prints) return;
  const PlanReport& plan = executable_->report();
  const int64_t shapes = data_.pipeline->shapes();
  absl::FPrintF(stderr, "mslua: %s: %d nodes in %d kernels%s, %.1f MiB of activations%s, compiled in %.2f s%s%s\n",
                spec_.name, plan.nodes, plan.kernels,
                shapes > 1 ? absl::StrCat(" for each of ", shapes, " shapes of a batch") : "",
                static_cast<double>(plan.workspace_bytes + plan.shared_bytes) / (1 << 20), rank_.device_text(),
                plan.compile_seconds, directory_.path().empty() ? "" : "; run folder ", directory_.path());
}

// What says so where the checkpoint is of the end of training; else empty.
std::string Training::NothingLeft() const {
  const TrainState& s = trainer_->state();
  if (early_stopping_ != nullptr && early_stopping_->ended()) {
    return absl::StrCat("nothing is left to train: the checkpoint is of step ", s.step,
                        ", where early stopping ended the training; a larger patience continues it");
  }
  const bool steps = spec_.options.max_steps > 0 && s.step >= spec_.options.max_steps;
  // A checkpoint of an epoch's last step is of before its end.
  const int64_t epochs = s.epoch + s.step_in_epoch / progress().steps_per_epoch;
  if (epochs < spec_.options.epochs && !steps) return "";
  const int64_t end = steps ? spec_.options.max_steps : spec_.options.epochs * progress().steps_per_epoch;
  return absl::StrCat("nothing is left to train: the checkpoint is of step ", s.step,
                      s.step > end ? absl::StrCat(", after step ", end) : "", ", the end of ",
                      steps ? "max_steps =" : "epochs =", " ", steps ? spec_.options.max_steps : spec_.options.epochs);
}

endpoint::TrainingView Training::View() {
  endpoint::TrainingView view;
  view.name = spec_.name;
  view.folder = directory_.path();
  if (rank_.job != nullptr) {
    view.job_epoch = rank_.job->epoch();
    view.recovers = !rank_.job->identity().recovery.empty();
  }
  view.trainer = trainer_.get();
  view.thread = pthread_self();
  if (together() != nullptr)
    view.place = [this](const std::string& name) { return PlaceOf(*rank_.state, parts_, name); };
  view.health = &health_;
  view.store = &rank_.state->store;
  view.compile = [this](const Graph& graph) { return rank_.compile_as_is(graph, &decisions_); };
  view.print = [this](const std::string& line) {
    if (!line.empty()) console_->Line(line);
    console_->Flush();
  };
  view.keep = [this] { return resuming_.kept().KeepNow(); };
  if (checkpoint_hook_ != nullptr) {
    view.save = [this](const std::string& name) { return checkpoint_hook_->SaveNow(trainer_->state(), name); };
    view.skip_last_save = [this] { checkpoint_hook_->SkipLast(); };
  }
  if (eval_hook_ != nullptr) {
    view.evaluate = [this] {
      const TrainState& s = trainer_->state();
      auto line = eval_hook_->Now(s, s.step_in_epoch > 0 ? s.epoch + 1 : std::max<int64_t>(1, s.epoch));
      if (checkpoint_hook_ != nullptr) checkpoint_hook_->SaveBestIfDue(s);
      return line;
    };
  }
  return view;
}

Status Training::OutcomeOf(Status outcome) const {
  if (outcome.ok() && user_hook_ != nullptr) outcome = user_hook_->late();
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
  if (!absl::IsCancelled(outcome)) return outcome;
  const bool saved = !path.empty() || (!first() && spec_.has_checkpoint);
  // Who asks by SIGTERM starts again and continues; who presses Ctrl-C does not.
  const std::string use = rank_.flags.may_resume
                              ? ", --resume resumes from it"
                              : absl::StrCat("; ms.load_checkpoint(\"", path, "\", net) loads its weights");
  const int64_t step = trainer_->state().step;
  std::string text = absl::StrCat("stopped at step ", step);
  if (!path.empty()) {
    const bool of_step = checkpoint_hook_->saved_step() == step;
    absl::StrAppend(&text, of_step ? "; saved " : " without a checkpoint of it; the newest is ", path, use);
  }
  const Status stopped = absl::CancelledError(text);
  return WithExitCode(stopped, saved && SignalScope::Signal() != SIGINT ? kExitCheckpointed : kExitInterrupted);
}

StatusOr<double> Training::Finish(Status outcome) {
  endpoint_.reset();
  progress().trainer = nullptr;
  progress().console = nullptr;
  progress().metrics = nullptr;
  progress().summaries = nullptr;
  RETURN_IF_ERROR(OutcomeOf(std::move(outcome)));
  resuming_.ForgetFolder();
  // Closes the files of records.
  hooks_.clear();
  console_.reset();
  rank_.records->Update(health_.outcome());
  const double* loss = progress().Find("loss");
  return loss == nullptr ? trainer_->state().loss : *loss;
}

}  // namespace mslua
