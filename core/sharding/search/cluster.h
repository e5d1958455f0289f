// The devices that a plan is made for: how fast they compute and how fast they talk.
#pragma once

#include <algorithm>
#include <string>

#include "core/sharding/reshard.h"

namespace mslua {

// Floating point operations a second, by the type of the operands; other types have the rate of f32.
struct FlopRates {
  FlopRates(double all) : f32(all), f64(all), bf16(all), f16(all) {}  // NOLINT: a number is the rate of every type
  double Of(DType type) const {
    return type == DType::kF64 ? f64 : type == DType::kBF16 ? bf16 : type == DType::kF16 ? f16 : f32;
  }
  double Least() const { return std::min({f32, f64, bf16, f16}); }
  double f32, f64, bf16, f16;
};

// Of one device. The defaults are one core of a server of today.
struct Cluster {
  FlopRates flops_per_second = 50e9;
  double bytes_per_second = 10e9;  // of its memory
  double launch_seconds = 0;       // that each kernel takes beside its arithmetic and its memory traffic
  int64_t memory_bytes = 0;        // 0: no limit
  LinkCosts links;
};

// Reads a cluster for plans on `mesh`:
//   {"flops_per_second": 312e12, "bytes_per_second": 1.5e12, "memory_bytes": 80e9, "copy_seconds_per_byte": 1e-12,
//    "axes": [{"seconds": 12e-6, "seconds_per_byte": 4e-11}, {"seconds": 3e-6, "seconds_per_byte": 2e-12}]}
// flops_per_second may be an object of rates by type, {"f32": 67e12, "bf16": 989e12}: "f32", which the types that are
// left out have too, and "f64", "bf16", "f16". "launch_seconds" is what each kernel takes beside its work.
// Each member may be left out. One axis for each of the mesh, or one for all. Errors name the member.
StatusOr<Cluster> ParseCluster(absl::string_view json, const Mesh& mesh);

// The devices whose figures mslua knows, "h200|h100|a100|b200".
std::string KnownDevices();
// The figures of one of them, or of "cuda", what was measured of this machine's, as ParseCluster reads them.
StatusOr<std::string> DeviceFiguresText(const std::string& device);

// Where `mslua doctor --calibrate` keeps what it measures: cluster.json in the user's cache folder ($XDG_CACHE_HOME,
// else ~/.cache), in mslua.
std::string MeasuredClusterFile();
// The same of `mslua doctor --calibrate --device cuda`: cuda.json.
std::string MeasuredDeviceFile();

}  // namespace mslua
