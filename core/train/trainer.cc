#include "core/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/data/loader.h"
#include "core/runtime/shaped_executable.h"

namespace mslua {
namespace {
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// Of the counters: the scalars that somebody has overridden, and those that are overridden, or given back to their
// schedule, as soon as so many steps are done ("override_at.460.lr").
constexpr char kOverride[] = "override.", kOverrideAt[] = "override_at.", kScheduleAt[] = "schedule_at.";
// Of the counters: the loss and the scalars of the last step ("last.lr").
constexpr char kLast[] = "last.", kLoss[] = "loss";
// Before the kind of a number that is not finite, whose counter then has its sign; 0: NaN.
constexpr char kNotFinite[] = "not_finite.";

// "override_at.460.lr"; false: no such name.
bool ParseLater(absl::string_view name, const char* kind, Trainer::LaterOverride* later) {
  if (!absl::ConsumePrefix(&name, kind)) return false;
  const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(name, absl::MaxSplits('.', 1));
  later->input = std::string(words.second);
  return absl::SimpleAtoi(words.first, &later->at);
}
}  // namespace

double TrainProgress::SamplesPerSecond() const {
  constexpr int64_t kWindow = 5'000'000'000;  // ns
  const int64_t done = step.load(), here = done - first_step;
  if (here < 2) return 0;
  const auto end_of = [this](int64_t s) { return ends[(s - 1) % kLosses].load(std::memory_order_relaxed); };
  // The training thread may be at the next step, whose place is that of the oldest one.
  const int64_t most = std::min(here - 1, kLosses - 2), last = end_of(done);
  int64_t steps = 1;
  while (steps < most && last - end_of(done - steps) < kWindow) steps = std::min(most, 2 * steps);
  const auto ns = static_cast<double>(std::max<int64_t>(last - end_of(done - steps), 1));
  const double late = static_cast<double>(CoarseNow() - last) - ns / static_cast<double>(steps);
  const double each = static_cast<double>(samples.load()) / static_cast<double>(here);
  return each * static_cast<double>(steps) / (1e-9 * (ns + std::max(0.0, late)));
}

const char* PhaseName(TrainProgress::Phase phase) {
  switch (phase) {
    case TrainProgress::Phase::kStarting:
      return "starting";
    case TrainProgress::Phase::kData:
      return "data";
    case TrainProgress::Phase::kCompute:
      return "compute";
    case TrainProgress::Phase::kBetween:
      return "between steps";
    case TrainProgress::Phase::kPaused:
      return "paused";
    case TrainProgress::Phase::kDone:
      return "done";
  }
  return "?";
}

Trainer::Trainer() {
  for (Begun& b : begun_) b.batch = std::make_unique<data::Batch>();
}
Trainer::~Trainer() = default;

StatusOr<std::unique_ptr<Trainer>> Trainer::Create(Executable* step, data::Loader* loader,
                                                   std::vector<ScheduledScalar> scalars, const TrainerOptions& options,
                                                   Console* console) {
  std::unique_ptr<Trainer> t(new Trainer);
  t->SetExecutable(step);
  t->loader_ = loader;
  t->console_ = console;
  t->options_ = options;
  t->scalars_ = std::move(scalars);
  const Graph& graph = step->graph();
  if (graph.outputs.empty() || graph.TypeOf(graph.outputs[0].value).elements() != 1)
    return absl::InvalidArgumentError("the training graph's first output is not a scalar loss");
  const std::vector<int32_t> inputs = graph.Inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node& n = graph.nodes[inputs[i]];
    const std::string &kind = n.attrs.Str("kind"), &name = n.attrs.Str("name");
    if (kind == kData) {
      t->column_positions_.push_back(static_cast<int>(i));
    } else if (kind == kScalar && name == "step") {
      t->step_position_ = static_cast<int>(i);
    } else if (kind == kScalar && name == kUpdates) {
      t->updates_position_ = static_cast<int>(i);
    }
  }
  const data::Pipeline& pipeline = loader->pipeline();
  const int64_t shapes = t->shaped_ == nullptr ? 1 : t->shaped_->shapes();
  if (pipeline.shapes() != shapes) {
    return absl::InvalidArgumentError(
        absl::StrCat("batches of the dataset have ", pipeline.shapes(), " shapes, the step was made for ", shapes));
  }
  for (int64_t s = 0; s < shapes; ++s) {
    const auto& schema = pipeline.schema(s);
    if (schema.size() < t->column_positions_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the dataset has ", schema.size(), " columns, the network and loss take ", t->column_positions_.size()));
    }
    const Graph& of_shape = t->shaped_ == nullptr ? graph : t->shaped_->plan(s).graph();
    const std::vector<int32_t> nodes = of_shape.Inputs();
    for (size_t c = 0; c < t->column_positions_.size(); ++c) {
      const int position = t->column_positions_[c];
      const int own = t->shaped_ == nullptr ? position : t->shaped_->PositionIn(s, position);
      const TensorType& type = of_shape.nodes[nodes[own]].outputs[0];
      if (schema[c].type != type) {
        return absl::InvalidArgumentError(absl::StrCat("column '", schema[c].name, "' of the dataset is ",
                                                       ToString(schema[c].type), ", the graph was made for ",
                                                       ToString(type)));
      }
    }
  }
  t->bound_.assign(t->column_positions_.size(), nullptr);
  for (const ScheduledScalar& s : t->scalars_) {
    RETURN_IF_ERROR(s.schedule.Check());
    const auto at = std::find(step->inputs().begin(), step->inputs().end(), s.input);
    // A rate that the graph does not read (no parameter in its group) has no place to go.
    t->scalar_positions_.push_back(at == step->inputs().end() ? -1 : static_cast<int>(at - step->inputs().begin()));
  }
  t->current_.assign(t->scalars_.size(), kNone);
  t->done_scalars_ = t->current_;
  t->overrides_.assign(t->scalars_.size(), kNone);
  return t;
}

double CounterOf(const Counters& counters, const std::string& name, double otherwise) {
  const auto found = counters.find(name);
  return found == counters.end() ? otherwise : found->second;
}

void SaveNumber(const std::string& kind, const std::string& name, double value, Counters* counters) {
  if (std::isfinite(value))
    (*counters)[kind + name] = value;
  else
    (*counters)[kNotFinite + kind + name] = std::isnan(value) ? 0 : value > 0 ? 1 : -1;
}

std::map<std::string, double> SavedNumbers(const std::string& kind, const Counters& counters) {
  std::map<std::string, double> numbers;
  for (const auto& [counter, value] : counters) {
    absl::string_view name = counter;
    const bool finite = !absl::ConsumePrefix(&name, kNotFinite);
    if (!absl::ConsumePrefix(&name, kind)) continue;
    numbers[std::string(name)] = finite ? value : value == 0 ? kNone : value * HUGE_VAL;
  }
  return numbers;
}

void Trainer::AddIntervention(std::string json) {
  if (interventions_.size() == kInterventions) interventions_.erase(interventions_.begin());
  interventions_.push_back(std::move(json));
}

Counters Trainer::SaveCounters() const {
  Counters counters;
  for (const TrainHook* h : hooks_) h->SaveCounters(&counters);
  if (skipped_ > 0) counters[kSkippedCounter] = static_cast<double>(skipped_);
  if (options_.rows > 0) counters[kRowsCounter] = static_cast<double>(options_.rows);
  counters[kEpochStepsCounter] = static_cast<double>(loader_->pipeline().size());
  for (size_t i = 0; i < scalars_.size(); ++i) {
    if (!std::isnan(overrides_[i])) counters[kOverride + scalars_[i].input] = overrides_[i];
    if (!std::isnan(done_scalars_[i])) SaveNumber(kLast, scalars_[i].input, done_scalars_[i], &counters);
  }
  if (state_.step > 0) SaveNumber(kLast, kLoss, state_.loss, &counters);
  for (const LaterOverride& later : later_) {
    const bool schedule = std::isnan(later.value);
    counters[absl::StrCat(schedule ? kScheduleAt : kOverrideAt, later.at, ".", later.input)] =
        schedule ? 0 : later.value;
  }
  return counters;
}

double Trainer::data_seconds() const { return loader_->wait_seconds(); }

Status Trainer::Restore(const TrainState& state, const Counters& counters) {
  state_ = state;
  for (TrainHook* h : hooks_) h->RestoreCounters(counters);
  const std::map<std::string, double> last = SavedNumbers(kLast, counters);
  state_.loss = CounterOf(last, kLoss, state.loss);
  for (size_t i = 0; i < scalars_.size(); ++i) {
    overrides_[i] = CounterOf(counters, kOverride + scalars_[i].input, overrides_[i]);
    done_scalars_[i] = CounterOf(last, scalars_[i].input, done_scalars_[i]);
  }
  for (const auto& [name, value] : counters) {
    LaterOverride later;
    // A scalar that this training does not have is left out, as above.
    if (ParseLater(name, kOverrideAt, &later))
      Override(later.input, value, later.at).IgnoreError();
    else if (ParseLater(name, kScheduleAt, &later))
      Override(later.input, kNone, later.at).IgnoreError();
  }
  skipped_ = static_cast<int64_t>(CounterOf(counters, kSkippedCounter, 0));
  state_.samples = 0;
  in_epoch_ = state.step_in_epoch > 0;
  progress_.first_step = state.step;
  progress_.step = state.step;
  progress_.boundary = state.step;
  progress_.epoch = state.epoch;
  progress_.step_in_epoch = state.step_in_epoch;
  return loader_->Seek({state.epoch, state.step_in_epoch});
}

Status Trainer::Override(const std::string& input, double value, int64_t at) {
  for (size_t i = 0; i < scalars_.size(); ++i) {
    if (scalars_[i].input != input) continue;
    if (at <= state_.step) {
      overrides_[i] = value;
      return absl::OkStatus();
    }
    const auto same = [&](const LaterOverride& l) { return l.at == at && l.input == input; };
    later_.erase(std::remove_if(later_.begin(), later_.end(), same), later_.end());
    const auto before = [](int64_t step, const LaterOverride& l) { return step < l.at; };
    later_.insert(std::upper_bound(later_.begin(), later_.end(), at, before), {input, at, value});
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("there is no scheduled scalar '", input, "'"));
}

int64_t Trainer::DropLater(const std::string& input, int64_t last) {
  const auto before = static_cast<int64_t>(later_.size());
  const auto of_input = [&](const LaterOverride& l) { return l.input == input && l.at <= last; };
  later_.erase(std::remove_if(later_.begin(), later_.end(), of_input), later_.end());
  return before - static_cast<int64_t>(later_.size());
}

void Trainer::SetExecutable(Executable* executable) {
  executable_ = executable;
  device_run_ = DeviceRunOf(executable);
  shaped_ = ShapedOf(executable);
}

void Trainer::ReplaceExecutable(Executable* executable) {
  if (executable == executable_) return;
  SetExecutable(executable);
  // Bound and set again before the next step.
  bound_.assign(bound_.size(), nullptr);
  current_.assign(current_.size(), kNone);
}

OptimizerHistory Trainer::history() const {
  OptimizerHistory done = options_.before;
  done.Count(state_.step, state_.step - skipped_, options_.ema);
  return done;
}

void Trainer::ApplyLater() {
  while (!later_.empty() && later_.front().at <= state_.step + running_) {
    const LaterOverride due = later_.front();
    later_.erase(later_.begin());
    Override(due.input, due.value).IgnoreError();  // whose scalar is there
  }
}

double Trainer::ScalarNext(int i) const {
  if (!std::isnan(overrides_[i])) return overrides_[i];
  if (scalars_[i].user) return done_scalars_[i];
  const OptimizerHistory done = history();
  const double value = scalars_[i].schedule.At(done.steps);
  return scalars_[i].is_rate ? done.Reduced(value) : value;
}

// Of the step that begins.
Status Trainer::SetScalars() {
  ApplyLater();
  OptimizerHistory done = history();
  done.steps += running_;
  done.updates += running_;
  for (size_t i = 0; i < scalars_.size(); ++i) {
    double value = overrides_[i];
    if (std::isnan(value)) {
      if (scalars_[i].user) {
        ASSIGN_OR_RETURN(value, scalars_[i].user(done.steps));
      } else {
        value = scalars_[i].schedule.At(done.steps);
      }
      if (scalars_[i].is_rate) value = done.Reduced(value);
    }
    if (value == current_[i]) continue;
    current_[i] = value;
    if (scalar_positions_[i] >= 0) executable_->SetScalarAt(scalar_positions_[i], value);
  }
  // A step without a loss scale is an update, and counts on from those before.
  if (step_position_ >= 0)
    executable_->SetScalarAt(step_position_, static_cast<double>(options_.before.updates + state_.step + running_));
  if (updates_position_ >= 0) executable_->SetScalarAt(updates_position_, static_cast<double>(done.updates));
  return absl::OkStatus();
}

Status Trainer::RunHooks() {
  if (state_.step < next_hook_) return absl::OkStatus();
  next_hook_ = next_stand_ = INT64_MAX;
  for (TrainHook* h : hooks_) {
    if (h->NextStep(state_) <= state_.step) RETURN_IF_ERROR(h->AtStep(state_));
    const int64_t next = std::max(h->NextStep(state_), state_.step + 1);
    next_hook_ = std::min(next_hook_, next);
    if (!h->only_reads()) next_stand_ = std::min(next_stand_, next);
  }
  return absl::OkStatus();
}

// Whether the epoch's last step is done, and its end is still to come.
bool Trainer::AtEndOfData() const { return in_epoch_ && state_.step_in_epoch >= loader_->pipeline().size(); }

Status Trainer::EndEpoch() {
  in_epoch_ = false;
  ++state_.epoch;
  state_.step_in_epoch = 0;
  for (TrainHook* h : hooks_) RETURN_IF_ERROR(h->AtEpochEnd(state_));
  return absl::OkStatus();
}

StatusOr<bool> Trainer::Step() {
  const auto start = std::chrono::steady_clock::now();
  auto made = StepImpl();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return made;
}

StatusOr<bool> Trainer::StepImpl() {
  if (running_ == 0) {
    RETURN_IF_ERROR(next_failed_);
    if (!in_epoch_) {
      for (TrainHook* h : hooks_) RETURN_IF_ERROR(h->AtEpochBegin(state_));
      in_epoch_ = true;
    }
    ASSIGN_OR_RETURN(const bool more, BeginStep());
    if (!more) {
      RETURN_IF_ERROR(EndEpoch());
      return false;
    }
  }
  if (BeginsNext()) next_failed_ = BeginStep().status();
  RETURN_IF_ERROR(EndStep());
  return true;
}

// False at the end of the epoch's data. On the CPU the step runs when it ends.
StatusOr<bool> Trainer::BeginStep() {
  Begun& step = begun(state_.step + running_);
  progress_.Enter(TrainProgress::Phase::kData);
  ASSIGN_OR_RETURN(const bool more, loader_->Next(step.batch.get()));
  if (!more) return false;
  for (size_t c = 0; c < column_positions_.size(); ++c) {
    const void* data = step.batch->columns[c].data;
    if (data == bound_[c]) continue;
    bound_[c] = data;
    executable_->BindInputAt(column_positions_[c], data);
  }
  if (shaped_ != nullptr) shaped_->Select(step.batch->shape);
  for (size_t c = 0; ahead_ && c < step.batch->columns.size(); ++c) step.columns.push_back(loader_->Keep(c));
  RETURN_IF_ERROR(SetScalars());
  step.scalars = current_;
  state_.whole = false;
  if (device_run_ != nullptr) {
    progress_.Enter(TrainProgress::Phase::kCompute);
    const Status started = device_run_->Start();
    broken_ = !started.ok();
    RETURN_IF_ERROR(started);
  }
  ++running_;
  return true;
}

// Whether a step may begin at all before those that run have ended. Code of users may look at everything between two
// steps, and so do ranks that agree there.
bool Trainer::MayRunAhead() const {
  if (device_run_ == nullptr || device_run_->StepsAhead() < 2 || options_.agree || prepare_) return false;
  const bool users = std::any_of(scalars_.begin(), scalars_.end(), [](const ScheduledScalar& s) { return !!s.user; });
  return !users && !loader_->pipeline().foreign();
}

// Whether the next step begins now, while one runs.
bool Trainer::BeginsNext() {
  if (!ahead_ || !next_failed_.ok() || running_ == static_cast<int>(begun_.size())) return false;
  const int64_t boundary = state_.step + running_;
  if (boundary >= next_stand_ || (options_.max_steps > 0 && boundary >= options_.max_steps) ||
      state_.step_in_epoch + running_ >= loader_->pipeline().size())
    return false;
  // As in Publish.
  progress_.boundary.store(boundary);
  return attention_.load() == 0;
}

// Of steps that are left because of an error the store has more than `state_` says.
void Trainer::DropBegun() {
  for (; running_ > 0; --running_) {
    device_run_->Finish().IgnoreError();
    state_.whole = false;
  }
  for (Begun& b : begun_) b.columns.clear();
}

// Ends the first of the steps that have begun.
Status Trainer::EndStep() {
  Begun& step = begun(state_.step);
  progress_.Enter(TrainProgress::Phase::kCompute);
  --running_;
  const Status ran = device_run_ != nullptr ? device_run_->Finish() : executable_->Run();
  RETURN_IF_ERROR(data::NameSample(ran, *loader_, *step.batch));
  step.columns.clear();
  std::swap(done_scalars_, step.scalars);
  progress_.Enter(TrainProgress::Phase::kBetween);
  const TensorView loss = executable_->Output(0);
  state_.loss = loss.type.dtype == DType::kF32 ? *loss.as<float>() : LoadAsDouble(loss.type.dtype, loss.data, 0);
  state_.samples += step.batch->valid;
  ++state_.step;
  ++state_.step_in_epoch;
  Publish();
  RETURN_IF_ERROR(CheckLoss());
  state_.whole = running_ == 0 && !broken_;
  console_->Loss(state_.step, state_.epoch + 1, state_.step_in_epoch, static_cast<float>(state_.loss));
  return RunHooks();
}

Status Trainer::CheckLoss() {
  const bool bad = options_.check_loss && !std::isfinite(state_.loss);
  if (bad) {
    // MindSpore's words for the same event.
    console_->Line(absl::StrCat("epoch: ", state_.epoch + 1, " step: ", state_.step_in_epoch,
                                ". Invalid loss, terminating training."));
    console_->Flush();
  }
  bool ends = bad;
  if (listener_ != nullptr) {
    ASSIGN_OR_RETURN(ends, listener_->AtLoss(state_, bad));
  }
  if (!ends) return absl::OkStatus();
  const char* what = !bad ? "of another rank is not a number" : std::isnan(state_.loss) ? "is NaN" : "is infinite";
  return absl::OutOfRangeError(absl::StrCat("the loss ", what, " at step ", state_.step));
}

void Trainer::Publish() {
  progress_.losses[(state_.step - 1) % TrainProgress::kLosses].store(static_cast<float>(state_.loss),
                                                                     std::memory_order_relaxed);
  progress_.ends[(state_.step - 1) % TrainProgress::kLosses].store(TrainProgress::CoarseNow(),
                                                                   std::memory_order_relaxed);
  progress_.epoch.store(state_.epoch, std::memory_order_relaxed);
  progress_.step_in_epoch.store(state_.step_in_epoch, std::memory_order_relaxed);
  progress_.samples.store(state_.samples, std::memory_order_relaxed);
  progress_.step.store(state_.step);
  // Sequentially consistent, as is reading attention_: one of the two threads sees the other's word.
  progress_.boundary.store(state_.step);
}

// What the word between steps asks for.
Status Trainer::Attend() {
  // Ranks that train together agree after a step: none may stop before it by itself, nor leave out what all do here.
  if (!stop_requested() || options_.agree) {
    attention_.fetch_and(~kBoundary);
    if (listener_ != nullptr) RETURN_IF_ERROR(listener_->AtBoundary(state_));
  }
  // At the end of an epoch's data the epoch ends before the ranks agree.
  const bool here = !options_.agree || (all_stop_ && !AtEndOfData());
  return stop_requested() && here ? Stopped() : absl::OkStatus();
}

Status Trainer::Loop() {
  next_hook_ = 0;
  // What a training resumes from may be of its end.
  if (state_.step > 0) {
    bool stop = stop_requested();
    if (options_.agree) {
      ASSIGN_OR_RETURN(stop, options_.agree(stop));
    }
    if (stop) return Stopped();
  }
  // An epoch whose steps are all done ends, whatever ends the training.
  const auto steps_left = [this] { return options_.max_steps == 0 || state_.step < options_.max_steps; };
  while (state_.epoch < options_.epochs && (steps_left() || AtEndOfData())) {
    if (running_ == 0) {
      ahead_ = MayRunAhead();
      if (attention_.load() != 0) RETURN_IF_ERROR(Attend());
    }
    RETURN_IF_ERROR(StepImpl().status());
    if (prepare_) RETURN_IF_ERROR(prepare_());
    bool stop = running_ == 0 && stop_requested();
    if (options_.agree) {
      ASSIGN_OR_RETURN(stop, options_.agree(stop));
    }
    if (commit_) commit_();
    if (stop) return Stopped();
  }
  return EndHooks();
}

Status Trainer::EndHooks() {
  for (TrainHook* h : hooks_) RETURN_IF_ERROR(h->AtLastStep(state_));
  return absl::OkStatus();
}

Status Trainer::Stopped() {
  if (options_.done && options_.done()) RETURN_IF_ERROR(EndHooks());
  return absl::CancelledError("stopped on request");
}

Status Trainer::Run() {
  Status outcome;
  for (TrainHook* h : hooks_) {
    outcome = h->AtBegin(state_);
    if (!outcome.ok()) break;
  }
  const auto start = std::chrono::steady_clock::now();
  if (outcome.ok()) outcome = Loop();
  DropBegun();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  console_->Flush();
  progress_.Enter(TrainProgress::Phase::kDone);
  for (TrainHook* h : hooks_) h->AtEnd(state_, outcome);
  console_->Flush();
  return outcome;
}

}  // namespace mslua
