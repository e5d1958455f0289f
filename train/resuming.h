// Where a training continues: from what its job has kept in memory, or from a checkpoint.
#pragma once

#include <memory>
#include <string>

#include "core/train/restore.h"
#include "core/train/shared_checkpoint.h"
#include "train/kept_training.h"
#include "train/run_directory.h"
#include "train/training_spec.h"

namespace mslua {

// The ranks that train together make the calls below together, in this order.
class Resuming {
 public:
  Resuming(const TrainingSpec& spec, const TrainingRank& rank, RunDirectory* directory)
      : spec_(spec), rank_(rank), directory_(directory) {}

  // Opens the image that this job has kept, else the checkpoint that --resume names: its plan is to be compiled.
  Status Find();
  // From memory; then checkpoint() is null.
  bool from_memory() const { return kept_->found(); }
  // From what another number of ranks has kept in memory, as a checkpoint of which no file is there.
  bool moved() const { return kept_->moved() != nullptr; }
  // What is resumed from; null: nothing, or memory.
  checkpoint::Checkpoint* checkpoint() const { return resumed_.own.get(); }
  // What the run that this one resumes from has chosen; empty: it is the first.
  std::string SavedPlan() const;
  // The word or path of --resume, "last" where a job that starts again has a checkpoint; or empty.
  const std::string& from() const { return from_; }

  // Writes down the run folder for the processes that follow in a job that starts again.
  Status RememberFolder() const;
  // Whether the run folder is that of the processes before this one in the job.
  bool SameFolder() const { return remembered_ == directory_->path(); }
  void ForgetFolder() const;

  // Fills the store. `rows` and `steps_per_epoch`: of global batches, and of an epoch of this run.
  Status Restore(const TensorNames& names, const TensorParts& parts, int64_t rows, int64_t steps_per_epoch);
  // The state of training there.
  const TrainState& state() const { return state_; }
  // Of what checkpoints leave out; 0: nothing, or not known.
  double unsaved() const { return unsaved_; }
  // Gives the trainer the checkpoint's place and counters.
  Status PlaceTrainer(Trainer* trainer) const;

  // Keeps what each turn leaves in memory that outlives this process, and resumes from the turn that was found there.
  Status KeepTurns(const std::string& plan, const std::string& lineage, const KeptTraining::Keeping& keeping);
  KeptTraining& kept() const { return *kept_; }
  // Records in the run folder that the job has started again, where it has; `step`: that training continues after.
  void RecordRecovery(int64_t step) const;
  // The checkpoint, in `directory` or the best one below it, that this run saved last before it started again; empty:
  // there is none.
  std::string NewestSaved(const std::string& directory) const;

  // Where checkpoints are saved.
  std::string CheckpointDirectory() const;

 private:
  bool recovers() const { return rank_.job != nullptr && !rank_.job->identity().recovery.empty(); }
  // Two programs of one identity make the same steps from the same state.
  std::string IdentityText() const;
  // The same, but for the number of ranks and what follows from it.
  std::string FamilyText() const;
  // The file that remembers this training's run folder; empty: there is none.
  std::string FolderFile() const;
  // Where a training of that run folder saves checkpoints; empty: nowhere.
  std::string CheckpointsOf(const std::string& folder) const;
  Status FindKept();
  StatusOr<bool> CheckpointIsAsNew() const;
  Status TakeMoved();
  Status FindOwnCheckpoint();
  Status OpenCheckpoint();
  Status MakeKeptValues() const;
  Status ReadCheckpoint(const TensorNames& names, const TensorParts& parts, int64_t rows, int64_t steps_per_epoch,
                        RestoreReport* report);
  Status CheckOwnValues(const TensorNames& names, const TensorParts& parts) const;
  void FindPlace(int64_t rows, int64_t steps_per_epoch);
  Status CompareSteps() const;
  void NoteDifferences(int64_t rows, int64_t steps_per_epoch) const;
  void NoteOtherRanks(const TensorNames& names, const TensorParts& parts) const;

  const TrainingSpec& spec_;
  const TrainingRank& rank_;
  RunDirectory* const directory_;
  std::unique_ptr<KeptTraining> kept_;
  std::string from_;
  std::string remembered_;  // the run folder of the processes before this one; empty: not known
  SharedCheckpoint resumed_;
  TrainState state_;
  double unsaved_ = 0;
  int64_t again_ = -1;  // steps that are computed again; -1: not known
};

// The rates of a schedule, for the scalar input of that name, after `before` steps.
std::string RatesText(const std::string& input, const Schedule& schedule, int64_t before);
// What all ranks must have in common besides the step.
std::string ScheduleText(const TrainingSpec& spec);

}  // namespace mslua
