// Which checkpoints a run writes and which it keeps, by the rules of CheckpointConfig.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/files/file_lock.h"

namespace mslua::checkpoint {

struct KeeperOptions {
  std::string directory = ".";
  std::string prefix = "ckpt";
  // When to save. Steps beat seconds; 0: not by this rule. With both 0 only the caller's own saves happen (the last).
  int64_t save_checkpoint_steps = 1;
  int64_t save_checkpoint_seconds = 0;
  // What to keep. The newest keep_checkpoint_max; or, when that is 0, the first after each so many minutes and the
  // newest; with both 0 all.
  int64_t keep_checkpoint_max = 5;
  int64_t keep_checkpoint_per_n_minutes = 0;
};

// Due() and PathFor() belong to the training thread, Saved() to whichever thread saves: those two may run at once.
class CheckpointKeeper {
 public:
  // Makes the directory, removes what killed writers left in it, and settles the prefix: one that another run's
  // checkpoints have, or that another process saves with now, becomes `<prefix>_1`, `<prefix>_2`, ... The keeper holds
  // the lock `.<prefix>.lock` of the directory. `resumed_from` is the folder of the checkpoint that this run resumes
  // from (empty: none). Where it, or one in this directory that leads to it or came after it, has the prefix, the run
  // keeps the prefix, and its checkpoints count among those to keep: first to go are those that do not lead to it
  // (LeadsTo), the oldest first. UNAVAILABLE: another process saves with that prefix. A checkpoint of an abandoned
  // lineage is replaced when this run saves at the same epoch and step.
  // `now`: seconds of a clock that does not jump. Negative numbers and all four zero are INVALID_ARGUMENT.
  static StatusOr<CheckpointKeeper> Create(const KeeperOptions& options, const std::string& resumed_from, double now);

  const std::string& prefix() const { return prefix_; }
  // Whether to save after `step` (since the run began, from 1). True starts the next interval of seconds.
  bool Due(int64_t step, double now);
  std::string PathFor(int64_t epoch, int64_t step) const;

  // To be called when SaveCheckpoint to `path` is done: verifies it and only then removes what is over the number
  // to keep. On an error nothing was removed by reason of this checkpoint.
  Status Saved(const std::string& path, double now);
  // The two parts of Saved(), for ranks with directories of their own: nothing is removed before all have verified.
  static Status Verify(const std::string& path);
  void Keep(const std::string& path, double now);
  // Why checkpoints that should be gone stay, once; OK: none does. Not while Saved() or Keep() may run.
  Status TakeStaying() { return std::exchange(staying_, absl::OkStatus()); }

 private:
  CheckpointKeeper() = default;
  KeeperOptions options_;
  std::string prefix_;
  double last_saved_ = 0;
  double last_kept_ = 0;
  std::deque<std::string> generations_;  // that may be removed, oldest first
  std::unique_ptr<FileLock> lock_;       // of the prefix
  Status staying_;                       // the first error of removing one, which is not tried again
};

}  // namespace mslua::checkpoint
