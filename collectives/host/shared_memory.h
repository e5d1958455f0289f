// Collectives of ranks that share a host's memory: threads of one process (inproc) or processes (native).
//
// A call is announced in a slot of the group's board and carried out in steps on the calling threads; there is no
// thread of its own. Which of four ways it goes is seen from all ranks' announcements, so all choose alike:
//   small   everything a peer needs fits the slot: one wait, then each rank computes from the slots;
//   direct  every buffer can be reached by the peers: they read and write it in place, no copy;
//   fetched each rank copies what it needs out of the peers' own memory, once (not all_reduce and reduce);
//   staged  through windows that stay in cache, two halves in turn.
// Announcements are compared before anything is moved; ranks that differ fail naming both calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/host/host.h"

namespace mslua {

// `key` names the group ("world"); `epoch` is the membership generation that announcements carry; `siblings` are those
// of the group that it is made from, null where there is none.
StatusOr<std::unique_ptr<Communicator>> MakeSharedMemoryCommunicator(
    std::shared_ptr<Host> host, std::vector<int> members, int place, std::string key, uint32_t epoch,
    std::shared_ptr<FlightRecorder> recorder, absl::Duration limit, std::shared_ptr<Siblings> siblings = nullptr);

}  // namespace mslua
