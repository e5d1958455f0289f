// Which of several ranks save a training's checkpoints, and where.
#pragma once

#include "core/train/checkpoint_hook.h"
#include "core/train/restore.h"

namespace mslua {

class Groups;

// Whether this rank takes part in saving, and with which others: all ranks call it together, with `wanted` where they
// were given a directory, options->keeper.directory. Ranks that were given one path save in it together where one of
// them has parts of its own; else the first of them saves alone. Ranks with paths of their own do the same where the
// parameters are sharded; else each saves what it has. A rank of a pipeline stage without parameters takes part like
// the others. `parts`: of this rank; `own_losses`: what follows depends on losses that ranks have of their own; `rank`:
// its number in the job.
StatusOr<bool> AgreeOnSaving(Groups& together, bool wanted, const TensorParts& parts, bool own_losses, int rank,
                             CheckpointOptions* options);

}  // namespace mslua
