// Rank tables: the JSON file that says which rank is which device of which server.
//
//   {"version": "1.0", "server_count": "1", "status": "completed", "server_list": [{"server_id": "10.0.0.1",
//     "device": [{"device_id": "0", "device_ip": "192.1.27.6", "rank_id": "0"}, ...], "host_nic_ip": "reserve"}]}
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

struct RankTable {
  struct Device {
    int device_id = 0;
    std::string device_ip;
    std::string server_id;
  };
  std::vector<Device> ranks;  // by rank_id
};

// InvalidArgument names the key, what was expected and what was given: a key missing or of another type, server_count
// not the number of servers, status not "completed", ranks repeated or not 0 to n - 1, a device of a server twice, more
// than 65536 ranks, over 16 MiB.
StatusOr<RankTable> ParseRankTable(absl::string_view json);

}  // namespace mslua
