// Backend inproc: ranks as threads of one process. Makes tests with many ranks cheap.
#pragma once

#include <memory>
#include <vector>

#include "collectives/communicator.h"

namespace mslua {

struct InprocOptions {
  // True: peers reach only memory of AllocateShared, as between processes; other buffers go through windows.
  bool private_buffers = false;
  uint32_t epoch = 0;
};

// World communicators of ranks 0 to `ranks` - 1 (1 to 256), each for one thread.
std::vector<std::unique_ptr<Communicator>> MakeInprocWorld(int ranks, const InprocOptions& options = {});

}  // namespace mslua
