// Processes of one host: unix sockets between all pairs of ranks, shared memory by memfd.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/host/shared_memory.h"

namespace mslua {

struct LocalHostOptions {
  int rank = 0;            // world rank of this process
  std::vector<int> ranks;  // world ranks of this host, ascending
  std::string folder;      // for the sockets
  uint32_t epoch = 0;
  absl::Duration timeout = absl::Seconds(30);
  bool fetch = true;  // peers may read this rank's memory, where the system permits it
};

// Meets the other ranks of the host. DeadlineExceeded names those that have not come.
StatusOr<std::shared_ptr<Host>> MakeLocalHost(const LocalHostOptions& options);

}  // namespace mslua
