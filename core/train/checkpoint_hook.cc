#include "core/train/checkpoint_hook.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

StatusOr<std::unique_ptr<CheckpointHook>> CheckpointHook::Create(const CheckpointOptions& options, const Store* store,
                                                                 const Trainer* trainer,
                                                                 std::function<void(const std::string&)> notice) {
  using checkpoint::CheckpointKeeper;
  ASSIGN_OR_RETURN(CheckpointKeeper keeper, CheckpointKeeper::Create(options.keeper, options.resumed_from, Now()));
  std::unique_ptr<CheckpointHook> hook(
      new CheckpointHook(options, store, trainer, std::move(notice), std::move(keeper)));
  if (options.keep_best) {
    checkpoint::KeeperOptions best = options.keeper;
    best.directory += "/best";
    best.keep_checkpoint_max = 1;
    // A run that goes on from any checkpoint of this directory goes on with its best one too.
    std::string resumed = options.resumed_from;
    const auto there = checkpoint::ListCheckpoints(best.directory);
    if (!resumed.empty() && there.ok() && !there->empty()) resumed = there->front().path;
    ASSIGN_OR_RETURN(CheckpointKeeper best_keeper, CheckpointKeeper::Create(best, resumed, Now()));
    hook->best_ = std::make_unique<CheckpointKeeper>(std::move(best_keeper));
  }
  return hook;
}

int64_t CheckpointHook::NextStep(const TrainState& state) {
  const int64_t every = options_.keeper.save_checkpoint_steps;
  if (every > 0) return saved_step_ == state.step ? state.step + 1 : (state.step + every - 1) / every * every;
  // By the clock: looked at after each step.
  return options_.keeper.save_checkpoint_seconds > 0 ? (saved_step_ == state.step ? state.step + 1 : state.step)
                                                     : INT64_MAX;
}

Status CheckpointHook::AtStep(const TrainState& state) {
  const Status earlier = saver_.Poll();
  if (!earlier.ok()) notice_(absl::StrCat("checkpoint not saved: ", earlier.message()));
  if (state.step > 0 && keeper_.Due(state.step, Now())) Save(state);
  return absl::OkStatus();
}

void CheckpointHook::Save(const TrainState& state) {
  if (saved_step_ == state.step) return;
  saved_step_ = state.step;
  SaveTo(&keeper_, state);
}

void CheckpointHook::SaveBest(const TrainState& state) { SaveTo(best_.get(), state); }

void CheckpointHook::SaveTo(checkpoint::CheckpointKeeper* keeper, const TrainState& state) {
  checkpoint::RunState run;
  run.job = options_.job;
  run.epoch = state.epoch;
  run.step = state.step;
  run.seed = options_.seed;
  run.data_epoch = state.epoch;
  run.data_batch = state.step_in_epoch;
  run.schedule_step = state.step;
  run.recipe_hash = options_.recipe_hash;
  run.graph_hash = options_.graph_hash;
  run.counters = trainer_->SaveCounters();
  std::vector<checkpoint::TensorData> tensors;
  for (const auto& e : store_->entries()) tensors.push_back({e->name, e->type, e->memory.data()});
  // The tutorials' name: the epoch that runs, from 1, and the step within it.
  const bool at_end = state.step_in_epoch == 0 && state.epoch > 0;
  const std::string path = keeper->PathFor(at_end ? state.epoch : state.epoch + 1, state.step);
  if (keeper == &keeper_) last_path_ = path;
  const auto then = [keeper, path] { return keeper->Saved(path, Now()); };
  Status done = saver_.Start(path, run, tensors, 1, then);
  if (done.ok() && !options_.async_save) done = saver_.Wait();
  if (!done.ok()) notice_(absl::StrCat("checkpoint not saved: ", done.message()));
}

void CheckpointHook::AtEnd(const TrainState& state, const Status& outcome) {
  const bool wanted = outcome.ok() || absl::IsCancelled(outcome) ? options_.save_at_end : options_.exception_save;
  if (wanted && state.whole && state.step > 0) Save(state);
  const Status last = saver_.Wait();
  if (!last.ok()) notice_(absl::StrCat("checkpoint not saved: ", last.message()));
}

StatusOr<TrainState> RestoreCheckpoint(checkpoint::Checkpoint& from, const Store& store, std::string* ignored) {
  for (const auto& e : store.entries()) {
    const checkpoint::TensorRecord* record = from.manifest().Find(e->name);
    if (record == nullptr)
      return absl::NotFoundError(absl::StrCat(from.path(), " has no tensor '", e->name, "', which the recipe has"));
    if (record->type != e->type) {
      return absl::InvalidArgumentError(absl::StrCat(from.path(), ": '", e->name, "' is ", ToString(record->type),
                                                     ", the recipe has ", ToString(e->type)));
    }
    RETURN_IF_ERROR(from.Read(e->name, e->memory.data()));
  }
  for (const checkpoint::TensorRecord& t : from.manifest().tensors) {
    if (store.Find(t.name) == nullptr) absl::StrAppend(ignored, ignored->empty() ? "" : ", ", t.name);
  }
  TrainState state;
  const checkpoint::RunState& run = from.manifest().run;
  state.step = run.step;
  state.epoch = run.data_epoch;
  state.step_in_epoch = run.data_batch;
  return state;
}

}  // namespace mslua
