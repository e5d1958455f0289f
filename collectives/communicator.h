// Collectives: what the ranks of a group do together.
//
// Every rank of a group makes the same calls in the same order. A call is a value (`Call`): it is run at once
// (`Run`), or started and waited for (`Start`, `Wait`). No call blocks for ever: it succeeds, or it returns within
// its deadline an error that names this rank, the peer, the operation, the recipe line and the evidence. After an
// error the group is of no more use and every later call repeats the error.
//
// Reductions combine the ranks' values in rank order, 16-bit floats in f32 with one rounding at the end, so results
// are bitwise repeatable and the same whichever way the bytes travelled (mpi: repeatable on the same world).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/call.h"
#include "collectives/flight_recorder.h"
#include "core/base/status.h"

namespace mslua {

// A started call; dies with its communicator.
struct Handle {
  uint64_t id = 0;
};

class Communicator;

// The groups of one rank. While a call of one group waits, what the others have begun is moved as well: the rank that
// is waited for may itself wait for that, as where messages between stages and collectives within a stage are of
// different groups. Used by the rank's own thread.
class Siblings {
 public:
  void Add(Communicator* group) { groups_.push_back(group); }
  void Remove(const Communicator* group);
  // Whether a group beside `waiting` has calls that have begun and not ended.
  bool Busy(const Communicator* waiting) const;
  // Does for the busy ones what can be done now. An error ends their group.
  Status Progress(const Communicator* waiting);

 private:
  std::vector<Communicator*> groups_;
};

class Communicator {
 public:
  virtual ~Communicator() { siblings_->Remove(this); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  // World ranks of the members, by rank in this group.
  const std::vector<int>& members() const { return members_; }

  // Begins `call`. Calls end in the order in which they began, whatever order they are waited for in.
  // InvalidArgument (a call that cannot be right) leaves the group usable.
  virtual StatusOr<Handle> Start(const Call& call) = 0;
  // Ends it. Waiting twice is harmless.
  virtual Status Wait(Handle handle) = 0;
  // Does what can be done now without waiting: for use between computations.
  virtual Status Progress() = 0;
  // True when the call has ended.
  virtual bool Done(Handle handle) const = 0;
  // Whether calls have begun that need this rank's calls to end, and no error has ended the group.
  virtual bool busy() const { return false; }
  // Start and Wait.
  virtual Status Run(const Call& call);

  // A group of these ranks of this group, in this order; called by its members alone, each with the same list. `limit`:
  // how long they wait for one another.
  // Groups made from one another share nothing that a caller must order. InvalidArgument: empty, repeated or
  // unknown ranks, or this rank not among them.
  virtual StatusOr<std::unique_ptr<Communicator>> Split(absl::Span<const int> ranks, absl::string_view source,
                                                        absl::Duration limit) = 0;

  // Called by all ranks of the world group with the same size: memory that peers of the host reduce in place, with
  // no copy; lives as long as any group of the world. 64-byte aligned, zeroed. Any backend accepts any
  // buffer; these are the fast ones.
  virtual StatusOr<void*> AllocateShared(int64_t bytes, absl::string_view source) = 0;

  // Makes all ranks' present and later calls fail, quoting `why` (not OK) and this rank.
  virtual void Abort(const Status& why) = 0;

  // Called by all ranks on the world group, after their last call: ends what would wait for other ranks when the
  // process ends (MPI_Finalize). Nothing may be called afterwards.
  virtual void Close() {}

  // The last calls of this rank, over all its groups; a device's, which go another way, are entered there too.
  FlightRecorder& recorder() const { return *recorder_; }
  // The groups made from one another, of which this is one.
  const std::shared_ptr<Siblings>& siblings() const { return siblings_; }

 protected:
  // `siblings`: of the group that it is made from; null: it is made from none.
  Communicator(int rank, std::vector<int> members, std::shared_ptr<FlightRecorder> recorder,
               std::shared_ptr<Siblings> siblings = nullptr)
      : recorder_(std::move(recorder)),
        siblings_(siblings == nullptr ? std::make_shared<Siblings>() : std::move(siblings)),
        rank_(rank),
        members_(std::move(members)) {
    siblings_->Add(this);
  }

  // InvalidArgument when `call` cannot be right whatever the peers do.
  Status Validate(const Call& call) const;
  // This rank's place in the group of `ranks`.
  StatusOr<int> PlaceIn(absl::Span<const int> ranks) const;
  // "rank 2/4".
  std::string Me() const;
  // `why` with this rank before its message, unless a rank is there.
  Status Mine(const Status& why) const;

  const std::shared_ptr<FlightRecorder> recorder_;
  const std::shared_ptr<Siblings> siblings_;

 private:
  const int rank_;
  const std::vector<int> members_;
};

// What other ranks report when one failed with `status`: differences between ranks concern all alike and stay as they
// are (FailedPrecondition); anything else is Aborted, "stopped because another rank failed: ...".
Status AsSeenByOthers(const Status& status);

}  // namespace mslua
