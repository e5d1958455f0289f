// The run folder of a training: it is found or made, one training at a time writes into it, and records of earlier ones
// are not mixed with its own.
#pragma once

#include <memory>
#include <string>

#include "core/checkpoint/checkpoint.h"
#include "core/files/file_lock.h"
#include "core/train/progress.h"
#include "train/training_spec.h"

namespace mslua {

class RunDirectory {
 public:
  RunDirectory(const TrainingSpec& spec, const TrainingRank& rank) : spec_(spec), rank_(rank) {}

  // Empty: not found yet, or nothing is saved.
  const std::string& path() const { return path_; }
  // Finds it, or makes it, the same on all ranks that train together; `resume`: what is resumed from, or empty. Does
  // nothing where the path is known.
  Status Find(const std::string& resume);
  // It is that one, of a training of this job that starts again.
  void Use(std::string path) { path_ = std::move(path); }
  // Locks it: rank 0 for all that train together. What killed trainings left is removed. Unavailable: another training
  // writes into it.
  Status Take();
  bool taken() const { return lock_ != nullptr; }

  // rank_<r>.env: what this rank was started with.
  Status RecordLaunch() const;
  // How the training ended, for who looks at the folder later. Writes nothing before SettleEarlierRecords: until then
  // the records are those of the training before, and so is how it ended.
  void RecordOutcome(const Status& outcome, int64_t step) const;
  // What is in the folder already: a training that resumes from a checkpoint continues it, `run`; else one that begins
  // has it out of its way. `kept`: it resumes from memory; `same_job`: the folder is of this job, which starts again.
  struct Beginning {
    const checkpoint::RunState* run = nullptr;
    bool kept = false, same_job = false;
  };
  // The outcome of the training before is removed.
  Status SettleEarlierRecords(const Beginning& beginning);

  // Removes the folder where this training has made it.
  void RemoveIfNew();

 private:
  StatusOr<std::string> Own(const std::string& resume);
  Status RemoveLaterRecords(const checkpoint::RunState& run) const;
  std::string Outcome() const;

  const TrainingSpec& spec_;
  const TrainingRank& rank_;
  std::string path_;
  bool made_ = false;
  bool settled_ = false;  // the records are this training's
  std::unique_ptr<FileLock> lock_;
};

}  // namespace mslua
