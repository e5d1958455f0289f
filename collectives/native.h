// Backend native: processes of one host through shared memory, hosts through TCP, chosen pair by pair.
//
// On a host every board and segment is a memfd, sealed, allocated in full and handed over a unix socket: nothing has
// a name that could be left behind, and the descriptor dies with its last process. The sockets stay open, so that a
// peer's death is seen as its end of file.
#pragma once

#include <memory>
#include <string>

#include "collectives/communicator.h"

namespace mslua {

struct NativeOptions {
  int rank = 0;
  int size = 1;
  // For the unix sockets (MakeSocketFolder); the same for all ranks of a host and for no other job.
  std::string folder;
  uint32_t epoch = 0;                          // of the membership; ranks of different epochs do not meet
  absl::Duration timeout = absl::Seconds(30);  // to meet all ranks
};

// The world of all ranks on this host. Called by every rank. DeadlineExceeded names the ranks that have not come.
StatusOr<std::unique_ptr<Communicator>> MakeNativeWorld(const NativeOptions& options);

}  // namespace mslua
