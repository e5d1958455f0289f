// The devices that a plan is made for: how fast they compute and how fast they talk.
#pragma once

#include <string>

#include "core/sharding/reshard.h"

namespace mslua {

// Of one device. The defaults are one core of a server of today.
struct Cluster {
  double flops_per_second = 50e9;
  double bytes_per_second = 10e9;  // of its memory
  int64_t memory_bytes = 0;        // 0: no limit
  LinkCosts links;
};

// Reads a cluster for plans on `mesh`:
//   {"flops_per_second": 312e12, "bytes_per_second": 1.5e12, "memory_bytes": 80e9, "copy_seconds_per_byte": 1e-12,
//    "axes": [{"seconds": 12e-6, "seconds_per_byte": 4e-11}, {"seconds": 3e-6, "seconds_per_byte": 2e-12}]}
// Each member may be left out. One axis for each of the mesh, or one for all. Errors name the member.
StatusOr<Cluster> ParseCluster(absl::string_view json, const Mesh& mesh);

// Where `mslua doctor --calibrate` keeps what it measures: cluster.json in the user's cache folder ($XDG_CACHE_HOME,
// else ~/.cache), in mslua.
std::string MeasuredClusterFile();

}  // namespace mslua
