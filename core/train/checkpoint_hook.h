// Saves the store, the step and the data position at step boundaries, and brings them back: a resumed run equals the
// undisturbed one bit for bit.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "collectives/groups.h"
#include "core/checkpoint/async_saver.h"
#include "core/checkpoint/keeper.h"
#include "core/train/trainer.h"

namespace mslua {

// How a tensor of the store lies in a checkpoint that ranks save together, where it is not the same on all of them.
struct TensorPart {
  bool own = false;      // each rank has a value of its own: kept as "rank_<r>/<name>", rank 0's under its name
  int64_t begin = 0;     // this rank has elements [begin, begin + size) of a flat tensor,
  int64_t whole = 0;     // of this many; what the store has behind them is padding. 0: the tensor is whole
  bool replica = false;  // a lower rank has this part too, and writes it
  Shape of, at;          // or: this rank has the part at `at` of a tensor of shape `of`
};
using TensorParts = absl::flat_hash_map<std::string, TensorPart>;

struct CheckpointOptions {
  checkpoint::KeeperOptions keeper;
  bool async_save = true;                          // the step stalls for the copy only
  bool save_at_end = true;                         // also after a request to stop
  bool exception_save = false;                     // also after an error, where the state is whole
  std::string job, recipe_hash, graph_hash, plan;  // as in RunState
  int64_t seed = 1;
  std::string resumed_from;  // the checkpoint's folder, when this run goes on from one
  bool keep_best = false;    // SaveBest is called: one more checkpoint, in the folder "best" of the directory
  // Ranks that write one checkpoint together, each its parts; null: this rank alone writes its whole store.
  Groups* together = nullptr;
  bool integrated =
      true;           // what they write is one file of whole tensors; else each rank's parts stay files of their own
  int64_t world = 1;  // ranks that train, for the manifest
  TensorParts parts;
};

class CheckpointHook : public TrainHook {
 public:
  // `trainer` (not owned) says what the hooks remember. `notice` gets one line for each save that failed: training goes
  // on without it. With `together` all ranks make one; exception_save is then InvalidArgument.
  static StatusOr<std::unique_ptr<CheckpointHook>> Create(const CheckpointOptions& options, const Store* store,
                                                          const Trainer* trainer,
                                                          std::function<void(const std::string&)> notice);

  int64_t NextStep(const TrainState& state) override;
  Status AtStep(const TrainState& state) override;
  void AtEnd(const TrainState& state, const Status& outcome) override;

  // Saves now, whatever is due.
  void Save(const TrainState& state);
  // Saves now, waits until it is verified, and gives the folder. With a name it is `<name>-<epoch>_<step>.ckpt`, which
  // is never removed. To be called on all ranks that save together.
  StatusOr<std::string> SaveNow(const TrainState& state, const std::string& name);
  // Training that ends saves no more.
  void SkipLast() { options_.save_at_end = false; }
  // Saves in place of the best so far.
  void SaveBest(const TrainState& state);
  // The folder of the last save that was started; empty before, and on ranks that write no manifest.
  const std::string& last_path() const { return last_path_; }
  // Whether that save is complete. After AtEnd() and SaveNow() it is, or has failed.
  bool saved() const { return saved_; }

 private:
  CheckpointHook(const CheckpointOptions& options, const Store* store, const Trainer* trainer,
                 std::function<void(const std::string&)> notice)
      : options_(options), store_(store), trainer_(trainer), notice_(std::move(notice)) {}
  Status SaveTo(checkpoint::CheckpointKeeper* keeper, const TrainState& state);
  // The state of this training as a checkpoint has it, in the next generation.
  checkpoint::RunState NextRun(const TrainState& state);
  Status Saved(checkpoint::CheckpointKeeper* keeper, const std::string& path);
  void NoteFailure(const Status& status) const;

  StatusOr<bool> Due(const TrainState& state);
  Status SaveTogether(checkpoint::CheckpointKeeper* keeper, const std::string& path, const checkpoint::RunState& run);
  StatusOr<checkpoint::Manifest> WriteOwnPart(const std::string& folder);

  CheckpointOptions options_;
  const Store* const store_;
  const Trainer* const trainer_;
  const std::function<void(const std::string&)> notice_;
  // Null on ranks that write no manifest, the second also without keep_best.
  std::unique_ptr<checkpoint::CheckpointKeeper> keeper_, best_;
  std::atomic<bool> saved_{false};  // set on the saver's thread
  checkpoint::Lineage lineage_;     // of the last save that was started, `parent` of the last that is complete
  checkpoint::AsyncSaver saver_;
  int64_t saved_step_ = -1;
  std::string last_path_;
};

// Fills `store` from the checkpoint and says where training stood. A tensor that the checkpoint lacks, or has with
// another type, is an error that names it; tensors that only the checkpoint has are named in `*ignored`. `parts` are
// this run's, whatever ranks the checkpoint was saved by.
StatusOr<TrainState> RestoreCheckpoint(checkpoint::Checkpoint& from, const Store& store, const TensorParts& parts,
                                       int rank, std::string* ignored);

}  // namespace mslua
