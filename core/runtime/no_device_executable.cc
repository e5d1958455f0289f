// What --config=cpu has in place of device_executable.cc and device_limits.cc.
#include "core/base/exit_code.h"
#include "core/runtime/device_executable.h"
#include "core/runtime/limits.h"

namespace mslua {

namespace {

Status NoDeviceCode() {
  return WithExitCode(absl::UnimplementedError("this program was built without the code of devices (--config=cpu)"),
                      kExitEnvironment);
}

}  // namespace

StatusOr<MachineLimits> MeasureDevice(Device*) { return NoDeviceCode(); }

StatusOr<std::unique_ptr<Executable>> MakeDeviceExecutable(Graph, Store*, const CompileOptions&,
                                                           std::chrono::steady_clock::time_point) {
  return NoDeviceCode();
}

}  // namespace mslua
