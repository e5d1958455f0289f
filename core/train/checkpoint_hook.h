// Saves the store, the step and the data position at step boundaries, and brings them back: a resumed run equals the
// undisturbed one bit for bit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/checkpoint/async_saver.h"
#include "core/checkpoint/keeper.h"
#include "core/train/trainer.h"

namespace mslua {

struct CheckpointOptions {
  checkpoint::KeeperOptions keeper;
  bool async_save = true;       // the step stalls for the copy only
  bool save_at_end = true;      // also after a request to stop
  bool exception_save = false;  // also after an error, where the state is whole
  std::string job, recipe_hash, graph_hash;
  int64_t seed = 1;
  std::string resumed_from;  // the checkpoint's folder, when this run goes on from one
  bool keep_best = false;    // SaveBest is called: one more checkpoint, in the folder "best" of the directory
};

class CheckpointHook : public TrainHook {
 public:
  // `trainer` (not owned) says what the hooks remember. `notice` gets one line for each save that failed: training goes
  // on without it.
  static StatusOr<std::unique_ptr<CheckpointHook>> Create(const CheckpointOptions& options, const Store* store,
                                                          const Trainer* trainer,
                                                          std::function<void(const std::string&)> notice);

  int64_t NextStep(const TrainState& state) override;
  Status AtStep(const TrainState& state) override;
  void AtEnd(const TrainState& state, const Status& outcome) override;

  // Saves now, whatever is due.
  void Save(const TrainState& state);
  // Saves in place of the best so far.
  void SaveBest(const TrainState& state);
  // The folder of the last save that was started; empty before.
  const std::string& last_path() const { return last_path_; }

 private:
  CheckpointHook(const CheckpointOptions& options, const Store* store, const Trainer* trainer,
                 std::function<void(const std::string&)> notice, checkpoint::CheckpointKeeper keeper)
      : options_(options), store_(store), trainer_(trainer), notice_(std::move(notice)), keeper_(std::move(keeper)) {}
  void SaveTo(checkpoint::CheckpointKeeper* keeper, const TrainState& state);

  const CheckpointOptions options_;
  const Store* const store_;
  const Trainer* const trainer_;
  const std::function<void(const std::string&)> notice_;
  checkpoint::CheckpointKeeper keeper_;
  std::unique_ptr<checkpoint::CheckpointKeeper> best_;  // null unless keep_best
  checkpoint::AsyncSaver saver_;
  int64_t saved_step_ = -1;
  std::string last_path_;
};

// Fills `store` from the checkpoint and says where training stood. A tensor that the checkpoint lacks, or has with
// another type, is an error that names it; tensors that only the checkpoint has are named in `*ignored`.
StatusOr<TrainState> RestoreCheckpoint(checkpoint::Checkpoint& from, const Store& store, std::string* ignored);

}  // namespace mslua
