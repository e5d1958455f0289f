// The accelerator that a session's graphs run on.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"

namespace mslua {

class Device;
class NcclWorld;
class Session;

// Null: the CPU. Else the device that `--device cuda` or set_context{device_target = "GPU"} asks for, opened at the
// first call: device_id where it was set, DEVICE_ID or the rank table's, else this rank's number on its host. More
// ranks on a host than it has devices are an error, unless MSLUA_SHARE_DEVICE=1 lets them share.
StatusOr<Device*> DeviceOf(Session& session);

// What collectives of graphs on the device go through; null: host memory, for the user has named another back end, or
// there are no other ranks, or no device. Where it is not named, NCCL is used where it can be: rank 0 says once where
// it cannot. With "nccl" that is an error, unless MSLUA_SHARE_DEVICE=1.
StatusOr<std::shared_ptr<NcclWorld>> NcclOf(Session& session);

// Makes NCCL's communicator of all ranks, or says why there cannot be one. Called by all ranks.
Status CheckNccl(Session& session);

// "NVIDIA H200 with NVRTC 13.0, cuBLASLt 13.0.2, cuDNN 9.19.0, NCCL 2.28.9, TF32 in products": what the bits of a graph
// depend on besides its plan; empty on the CPU. Called by all ranks.
StatusOr<std::string> DeviceAndLibraries(Session& session);

// " on device 0 (NVIDIA H200)", for a line about a graph; empty: on the CPU.
std::string DeviceText(const Session& session);

}  // namespace mslua
