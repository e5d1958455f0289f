// What connects the ranks of one host: threads of one process (inproc.h) or processes (local_host.h).
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "collectives/host/board.h"
#include "core/base/status.h"

namespace mslua {

// What the ranks of one host are to each other, seen from one of them. Ranks are world ranks here. Called by the
// thread of its rank only.
class Host {
 public:
  virtual ~Host() = default;
  // Where these bytes of this rank are for its peers.
  virtual Address Locate(const void* data, int64_t bytes) const = 0;
  // The peer's bytes, which are in a shared segment.
  virtual char* Resolve(int rank, Address address) const = 0;
  // Copies the peer's bytes, which are not private. Unavailable: its memory cannot be read (any more).
  virtual Status Fetch(int rank, Address address, void* to, int64_t bytes) const = 0;
  // Empty while the peer's process lives, else how it is known to be gone ("its process 812 has ended").
  virtual std::string Gone(int rank) = 0;
  // Ranks of this host, which share its cores.
  virtual int ranks() const = 0;
  // The board of a new group of `members`, of which this is the `place`-th. Called by all members; `key` is the same
  // for all of them and unlike that of any other group.
  virtual StatusOr<Board> Join(const std::vector<int>& members, int place, const std::string& key,
                               absl::Duration limit) = 0;
  // This rank's part of a new segment, which after a barrier every peer can reach.
  virtual StatusOr<void*> AddSegment(int64_t bytes, absl::Duration limit) = 0;
};

}  // namespace mslua
