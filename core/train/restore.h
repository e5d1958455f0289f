// Brings back what CheckpointHook saved, on any number of ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/runtime/store.h"
#include "core/train/shared_checkpoint.h"
#include "core/train/tensor_part.h"
#include "core/train/trainer.h"

namespace mslua {

class Groups;

// Whether the run that saved it had made all steps of its epoch, and the epoch's end was still to come. `unsaid`: where
// the checkpoint is of a version that did not remember how many those are.
bool EndsEpoch(const checkpoint::RunState& run, int64_t unsaid);

// What a checkpoint and the store did not have in common.
struct RestoreReport {
  std::vector<std::string> ignored;  // tensors that only the checkpoint has
  // Tensors that have an older name in the checkpoint: their name and that one.
  std::vector<std::pair<std::string, std::string>> renamed;
};

// Fills those tensors of `store` that `names` has from the checkpoint and says where training stood. A tensor that the
// checkpoint lacks, or has with another type, is an error that names it. `parts` are this run's, whatever ranks the
// checkpoint was saved by. `groups`: the ranks that opened it together, all of which call this; null: this rank alone.
StatusOr<TrainState> RestoreCheckpoint(Groups* groups, SharedCheckpoint& from, const Store& store,
                                       const TensorNames& names, const TensorParts& parts, int rank,
                                       RestoreReport* report);

}  // namespace mslua
