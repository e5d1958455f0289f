// Saves the store, the step and the data position at step boundaries. RestoreCheckpoint (restore.h) brings them back: a
// resumed run equals the uninterrupted one bit for bit.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "core/checkpoint/async_saver.h"
#include "core/checkpoint/keeper.h"
#include "core/train/tensor_part.h"
#include "core/train/time_left.h"
#include "core/train/trainer.h"

namespace mslua {

class Groups;

struct CheckpointOptions {
  checkpoint::KeeperOptions keeper;
  bool async_save = true;                          // the step stalls for the copy only
  bool save_at_end = true;                         // also after a request to stop
  bool exception_save = false;                     // also after an error, where the state is whole
  std::string job, recipe_hash, graph_hash, plan;  // as in RunState
  int64_t seed = 1;
  std::string resumed_from;  // the checkpoint's folder, when this run resumed from one
  // What the saves count from, where several ranks save (ShareLineage); else BeginLineage says it.
  absl::optional<checkpoint::Lineage> lineage;
  bool keep_best = false;  // BestIsDue is called: one more checkpoint, in the folder "best" of the directory
  // The process may end at any moment, and training continues all the same: it waits for a best checkpoint, and for
  // one that ranks write together; what else async_save writes is kept by `keep_unfinished` until it is there.
  bool recovers = false;
  checkpoint::AsyncSaver::KeepMemory keep_unfinished;  // null: it is not
  // Ranks that write one checkpoint together, each its parts; null: this rank alone writes its whole store.
  Groups* together = nullptr;
  // With `together`: FindSavePlaces of their directories. Where these are several, each gets the parts of its ranks and
  // the manifest of all, whatever `integrated` is.
  std::vector<int> places;
  std::string host;  // this rank's, for manifests of several directories
  // Without `together`: whose values of what ranks have of their own this rank's checkpoint has (RunState::rank).
  int64_t rank = 0;
  // Ranks that give those that write their values of what varies, and their counters: all of them make a hook and save
  // at the same steps. Null: nothing varies, or `together` is there.
  Groups* varying = nullptr;
  bool writes = true;  // without `together`: this rank writes checkpoints
  bool integrated =
      true;           // what they write is one file of whole tensors; else each rank's parts stay files of their own
  int64_t world = 1;  // ranks that train, for the manifest
  TensorParts parts;
  TensorNames names;                    // what of the store is saved
  std::function<void()> write_records;  // before each save, so that a run that resumes has all that came before
};

// Of the counters in a checkpoint: 1 where rank 0 saved it after an error, without what other ranks had of their own.
inline constexpr char kFirstRankCounter[] = "saved.first_rank_only";

class CheckpointHook : public TrainHook {
 public:
  // `trainer` (not owned) says what the hooks remember. `notice` gets one line for each save that failed: training goes
  // on without it. With `together` all ranks make one; exception_save is then InvalidArgument. The directory must
  // exist.
  static StatusOr<std::unique_ptr<CheckpointHook>> Create(const CheckpointOptions& options, const Store* store,
                                                          const Trainer* trainer,
                                                          std::function<void(const std::string&)> notice);

  int64_t NextStep(const TrainState& state) override;
  Status AtStep(const TrainState& state) override;
  Status AtEpochEnd(const TrainState& state) override;
  Status AtLastStep(const TrainState& state) override;
  void AtEnd(const TrainState& state, const Status& outcome) override;

  // Files that each checkpoint from now on has too.
  void SetCompanions(checkpoint::Companions companions) { companions_ = std::move(companions); }
  // Saves now, whatever is due.
  void Save(const TrainState& state);
  // Saves now, waits until it is verified, and gives the folder. With a name it is `<name>-<epoch>_<step>.ckpt`, which
  // is never removed. To be called on all ranks that save together.
  StatusOr<std::string> SaveNow(const TrainState& state, const std::string& name);
  // Training that ends saves no more.
  void SkipLast() {
    options_.save_at_end = false;
    planned_.SkipLast();
  }
  // What this step or epoch leaves is the best so far: it is saved in place of the one before when this hook is called,
  // after those that judge it, whose counters the checkpoint has.
  void BestIsDue() { best_due_ = true; }
  // Saves it now, where one is due.
  void SaveBestIfDue(const TrainState& state);
  // The folder of the last save that was started; empty before, and on ranks that write no manifest.
  const std::string& last_path() const { return last_path_; }
  // The step of the last save that was started, named ones apart; -1: none.
  int64_t saved_step() const { return saved_step_; }
  const checkpoint::Lineage& lineage() const { return lineage_; }
  // The saves that are due after so many steps: how long training waits for them.
  const PlannedWork& planned() const { return planned_; }
  // Whether that save is complete. After AtEnd() and SaveNow() it is, or has failed.
  bool saved() const { return saved_; }

 private:
  // A tensor as a checkpoint has it beside, or instead of, the store's of that name.
  struct KeptTensor {
    std::string name;
    TensorType type;
    std::string bytes;
  };

  CheckpointHook(const CheckpointOptions& options, const Store* store, const Trainer* trainer,
                 std::function<void(const std::string&)> notice)
      : options_(options),
        store_(store),
        trainer_(trainer),
        notice_(std::move(notice)),
        planned_(options.keeper.save_checkpoint_steps, 0, options.save_at_end) {}
  Status SaveTo(checkpoint::CheckpointKeeper* keeper, const TrainState& state);
  std::vector<const Store::Entry*> SavedEntries() const;
  // Whether an accelerator has memory for a copy of what is saved: a save is made from it while training continues.
  bool ReserveSnapshot();
  // `kept` are in place of the store's tensors of these names.
  Status SaveSnapshot(const std::string& path, const checkpoint::RunState& run, std::vector<KeptTensor> kept,
                      std::function<Status()> then);
  // The state of this training as a checkpoint has it, in the next generation.
  checkpoint::RunState NextRun(const TrainState& state);
  Status Saved(checkpoint::CheckpointKeeper* keeper, const std::string& path);
  void NoteSaved(const checkpoint::CheckpointKeeper* keeper, const std::string& path);
  void NoteFailure(const Status& status) const;

  // The ranks that save at the same steps; null: this rank alone.
  Groups* ranks() const { return options_.together != nullptr ? options_.together : options_.varying; }
  // Compares what varies with rank 0's. By name: for each rank, whether its value differs. `first` gets rank 0's values
  // where this rank's differ.
  StatusOr<std::map<std::string, std::string>> CompareVarying(std::vector<KeptTensor>* first) const;
  // The values of what varies that this rank's checkpoint needs besides its store.
  StatusOr<std::vector<KeptTensor>> GatherVarying() const;

  StatusOr<bool> Due(const TrainState& state);
  // Whether this rank makes the folder and writes the manifest, of all ranks that save into its directory.
  bool leads() const;
  bool one_place() const;
  Status SaveTogether(checkpoint::CheckpointKeeper* keeper, const std::string& path, const checkpoint::RunState& run);
  // The ends of SaveTogether: in one directory, and in several.
  Status CommitParts(checkpoint::CheckpointKeeper* keeper, const std::string& path, const checkpoint::RunState& run,
                     std::unique_ptr<checkpoint::CheckpointWriter> writer, std::vector<checkpoint::Manifest> parts);
  Status CommitPlaces(checkpoint::CheckpointKeeper* keeper, const std::string& path, const checkpoint::RunState& run,
                      checkpoint::CheckpointWriter* writer, std::vector<checkpoint::Manifest> parts);
  // `differs` as CompareVarying gives it.
  StatusOr<checkpoint::Manifest> WriteOwnPart(const std::string& folder,
                                              const std::map<std::string, std::string>& differs);

  CheckpointOptions options_;
  const Store* const store_;
  const Trainer* const trainer_;
  const std::function<void(const std::string&)> notice_;
  // Null on ranks that write no manifest, the second also without keep_best.
  std::unique_ptr<checkpoint::CheckpointKeeper> keeper_, best_;
  std::atomic<bool> saved_{false};  // set on the saver's thread
  checkpoint::Lineage lineage_;     // of the last save that was started, `parent` of the last that is complete
  checkpoint::AsyncSaver saver_;
  bool alone_ = false;  // after an error: the other ranks may not come
  int64_t saved_step_ = -1;
  bool best_due_ = false;
  PlannedWork planned_;
  std::string last_path_;
  checkpoint::Companions companions_;
  std::vector<const Store::Entry*> snapshot_;  // what memory for snapshots was asked for
  bool takes_snapshots_ = false;               // there is some
};

}  // namespace mslua
