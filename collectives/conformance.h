// The conformance suite: what every backend does, compared with a sequential reference. Tests of the backends run it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/communicator.h"

namespace mslua {

// Makes the world of one rank; called by the thread or process of that rank.
using MakeRank = std::function<StatusOr<std::unique_ptr<Communicator>>(int rank, int size)>;

// Runs `body` as rank r of n on n threads and waits for all of them.
void OnThreads(int n, const MakeRank& make, const std::function<void(Communicator&)>& body);
// The same over worlds made beforehand.
void OnThreads(std::vector<std::unique_ptr<Communicator>> world, const std::function<void(Communicator&)>& body);

struct ConformanceOptions {
  bool rank_order = true;  // reductions of floats have exactly the bits of the rank-order reference
  int64_t large = 40000;   // elements of the largest buffers
};

// Each is called by all ranks of a fresh world and checks with EXPECT.
// Every collective, reduction, dtype and several sizes (0, 1, odd, not divisible, large), in place where that is
// allowed, all roots of small groups.
void CheckCollectives(Communicator& comm, const ConformanceOptions& options = {});
// The same in groups: odd and even ranks, reversed order, a single rank, a group of a group.
void CheckGroups(Communicator& comm, const ConformanceOptions& options = {});
// Several calls begun before any is waited for, waited for in another order, with messages between.
void CheckAsynchronous(Communicator& comm);
// Send and recv around a ring and between all pairs, sizes from 0 to large.
void CheckMessages(Communicator& comm, const ConformanceOptions& options = {});
// Messages of one group move while their sender waits for a collective of another. With fewer than 4 ranks nothing is
// checked.
void CheckMessagesBesideCollectives(Communicator& comm);
// The largest and the least of numbers and NaN is NaN, whichever rank has it.
void CheckNaN(Communicator& comm);
// The same reduction twice gives the same bits.
void CheckRepeatable(Communicator& comm, const ConformanceOptions& options = {});
// Buffers of AllocateShared, alone and mixed with private ones.
void CheckShared(Communicator& comm, const ConformanceOptions& options = {});
// Calls that cannot be right are refused and leave the group usable.
void CheckRefusals(Communicator& comm);

// Each leaves its group broken. Rank 1 (of at least 2) calls something else: all ranks fail naming both calls.
void CheckMismatch(Communicator& comm);
// The two ends of a message differ: both fail.
void CheckMessageMismatch(Communicator& comm);
// The last rank does not come: the others fail within the deadline and name it.
void CheckDeadline(Communicator& comm);
// The same; the last rank leaves when the others have given up, or after so long where they are other processes.
void CheckDeadlineFor(Communicator& comm, absl::Duration stays);
// One rank aborts: the others fail quoting it.
void CheckAbort(Communicator& comm);
// The last rank destroys its communicator while the others wait for it.
void CheckLeaving(std::unique_ptr<Communicator> comm);

}  // namespace mslua
