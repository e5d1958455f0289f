// Backend nccl: NCCL between CUDA devices (collectives/nccl), beside a backend of the host.
#include "absl/strings/str_cat.h"
#include "collectives/backends/define.h"
#include "core/device/libraries.h"

namespace mslua {
namespace {

StatusOr<std::string> Available() {
  ASSIGN_OR_RETURN(const auto* const nccl, cuda::OpenNccl());
  int version = 0;
  nccl->call.ncclGetVersion(&version);
  return absl::StrCat("NCCL ", cuda::NcclVersionText(version), ", ", nccl->path);
}

}  // namespace

MSLUA_BACKEND(nccl) {
  BackendDef def("nccl");
  def.device = "cuda";
  def.available = Available;
  def.without = "ranks on devices exchange data through host memory";
  return def;
}

}  // namespace mslua
