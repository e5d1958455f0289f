// Where a rank can be reached.
#pragma once

#include <string>

#include "rendezvous/socket.h"

namespace mslua {

struct RankAddress {
  std::string host;   // ranks with the same name are on one host
  Endpoint endpoint;  // where it listens for ranks of other hosts
};

}  // namespace mslua
