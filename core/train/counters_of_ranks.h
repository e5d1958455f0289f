// What hooks of data parallel ranks remember of their own, such as the sum of an epoch's losses, in the counters of one
// checkpoint.
#pragma once

#include "collectives/groups.h"
#include "core/base/status.h"
#include "core/train/trainer.h"

namespace mslua {

// Called by all ranks together, each with its own counters. To these are added those that other ranks have otherwise,
// as "rank.<r>.<name>".
Status AddCountersOfRanks(Groups& groups, Counters* counters);

// The counters of a rank of `ranks`, of what `saved_ranks` ranks have saved. On another number of ranks each has the
// mean over those that saved: the mean over ranks is what it was.
Counters CountersOfRank(const Counters& saved, int64_t saved_ranks, int64_t rank, int64_t ranks);

}  // namespace mslua
