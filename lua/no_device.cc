// What --config=cpu has in place of device.cc. CheckDevices has refused what asks for a device before.
#include "core/device/device.h"
#include "lua/device.h"
#include "lua/options.h"
#include "lua/session.h"

namespace mslua {

std::string DeviceText(const Session&) { return ""; }

StatusOr<Device*> DeviceOf(Session& session) {
  if (OptionString(session.lua(), "device") == "cuda") RETURN_IF_ERROR(CheckDevices());
  return nullptr;
}

StatusOr<std::string> DeviceAndLibraries(Session&) { return std::string(); }

StatusOr<std::shared_ptr<NcclWorld>> NcclOf(Session&) { return std::shared_ptr<NcclWorld>(); }

Status CheckNccl(Session&) { return CheckDevices(); }

}  // namespace mslua
