// Groups whose ranks live on more than one host: each pair by shared memory where it can, by TCP where it must.
//
// Every collective is a direct exchange between all pairs: the slice or block that rank k is to reduce or keep goes
// straight to rank k, which combines in rank order; what all are to have goes straight to all. That moves the least
// bytes a rank can move, in one or two steps, and gives the same bits as on one host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "collectives/communicator.h"
#include "collectives/net/links.h"

namespace mslua {

struct NetworkGroup {
  std::vector<int> members;  // world ranks
  int place = 0;             // this rank's, in members
  std::string key;           // names the group
  uint32_t epoch = 0;
  // Of the members on this host, this rank among them.
  std::unique_ptr<Communicator> local;
  std::vector<int> local_members;  // their world ranks, in the order of `local`
  bool one_a_host = false;         // no two members are on one host
  std::shared_ptr<Links> links;
  std::shared_ptr<FlightRecorder> recorder;
};

// What tells the frames of a group from those of others: 64 bits of the BLAKE2b digest of its key.
uint64_t GroupId(absl::string_view key);

// Called by all members. The links join all pairs of them that are on different hosts.
StatusOr<std::unique_ptr<Communicator>> MakeNetworkCommunicator(NetworkGroup group);

}  // namespace mslua
