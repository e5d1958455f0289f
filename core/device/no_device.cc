// What --config=cpu has in place of the code of devices: the answers of a machine that cannot use one.
#include "core/base/exit_code.h"
#include "core/device/device.h"
#include "core/device/libraries.h"

namespace mslua {

Status NoDeviceCode() {
  return WithExitCode(absl::UnimplementedError("this program was built with --config=cpu, without the code of devices: "
                                               "build it without --config=cpu, or leave out --device cuda"),
                      kExitEnvironment);
}

Status CheckDevices() { return NoDeviceCode(); }
StatusOr<Device*> Device::Open(int) { return NoDeviceCode(); }
StatusOr<std::vector<DeviceInfo>> ListDevices() { return NoDeviceCode(); }

namespace cuda {

StatusOr<const Library<Driver>*> OpenDriver() { return NoDeviceCode(); }
StatusOr<const Library<Nvrtc>*> OpenNvrtc() { return NoDeviceCode(); }
StatusOr<const Library<CublasLt>*> OpenCublasLt() { return NoDeviceCode(); }
StatusOr<const Library<Cudnn>*> OpenCudnn() { return NoDeviceCode(); }
StatusOr<const Library<Nccl>*> OpenNccl() { return NoDeviceCode(); }
std::string CublasVersionText(size_t) { return ""; }
std::string CudnnVersionText(size_t) { return ""; }
std::string NcclVersionText(int) { return ""; }

}  // namespace cuda
}  // namespace mslua
