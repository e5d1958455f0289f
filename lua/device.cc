#include "lua/device.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/nccl.h"
#include "core/base/exit_code.h"
#include "core/device/device.h"
#include "launch/job.h"
#include "lua/options.h"
#include "lua/session.h"

namespace mslua {
namespace {

constexpr char kShare[] = "MSLUA_SHARE_DEVICE", kNccl[] = "nccl";

bool SharesDevices() {
  const char* const share = std::getenv(kShare);
  return share != nullptr && absl::string_view(share) == "1";
}

// This rank's number among those of its host, and how many they are.
std::pair<int, int> PlaceOnHost(const Session& session) {
  const int rank = session.state().rank;
  if (session.job == nullptr || session.job->hosts().empty()) {
    const int known = session.job == nullptr ? -1 : session.job->identity().local_rank;
    return {known >= 0 ? known : rank, session.state().ranks};
  }
  const auto& hosts = session.job->hosts();
  int place = 0, all = 0;
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] != hosts[static_cast<size_t>(rank)]) continue;
    if (static_cast<int>(r) < rank) ++place;
    ++all;
  }
  return {place, all};
}

StatusOr<int> OrdinalOf(Session& session) {
  ASSIGN_OR_RETURN(const int count, Device::Count());
  const std::string set = OptionString(session.lua(), "device_id");
  if (!set.empty()) return std::atoi(set.c_str());
  const int named = session.job == nullptr ? -1 : session.job->identity().device_id;
  if (named >= 0) return named;
  const auto [place, all] = PlaceOnHost(session);
  if (place < count) return place;
  if (SharesDevices() && count > 0) return place % count;
  return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                          all, " ranks on this host, which has ", count, count == 1 ? " device" : " devices",
                          ": start fewer ranks, or set ", kShare, "=1 to let ranks share a device")),
                      kExitEnvironment);
}

}  // namespace

std::string DeviceText(const Session& session) {
  if (session.device == nullptr) return "";
  const DeviceInfo& info = session.device->info();
  return absl::StrCat(" on device ", info.ordinal, " (", info.name, ")");
}

namespace {

StatusOr<Device*> OpenDeviceOf(Session& session) {
  if (session.device != nullptr) {
    // It was opened before the script has named another one.
    const std::string set = OptionString(session.lua(), "device_id");
    return set.empty() ? session.device : Device::Open(std::atoi(set.c_str()));
  }
  if (OptionString(session.lua(), "device") != "cuda") return nullptr;
  RETURN_IF_ERROR(CheckDevices());
  ASSIGN_OR_RETURN(const int ordinal, OrdinalOf(session));
  ASSIGN_OR_RETURN(session.device, Device::Open(ordinal));
  return session.device;
}

}  // namespace

StatusOr<Device*> DeviceOf(Session& session) {
  ASSIGN_OR_RETURN(Device* const device, OpenDeviceOf(session));
  if (device != nullptr) {
    device->CheckLaunches(OptionBool(session.lua(), "device_check"));
    device->AllowTf32({OptionBool(session.lua(), "conv_allow_tf32"), OptionBool(session.lua(), "matmul_allow_tf32")});
  }
  return device;
}

StatusOr<std::shared_ptr<NcclWorld>> NcclOf(Session& session) {
  // Who names a backend of the host has its collectives go through host memory.
  const bool named = !session.backend.empty() && session.backend != kNccl;
  if (session.groups() == nullptr || session.groups()->size() < 2 || named) return std::shared_ptr<NcclWorld>();
  ASSIGN_OR_RETURN(Device* const device, DeviceOf(session));
  if (device == nullptr || session.nccl != nullptr) return session.nccl;
  const bool needed = session.backend == kNccl && !SharesDevices();
  ASSIGN_OR_RETURN(session.nccl,
                   NcclWorld::Make(session.state().groups, device, needed ? NcclUse::kAlways : NcclUse::kWherePossible,
                                   [rank = session.state().rank](const std::string& why) {
                                     if (rank == 0)
                                       std::fprintf(stderr,
                                                    "mslua: collectives of devices go through host "
                                                    "memory: %s\n",
                                                    why.c_str());
                                   }));
  return session.nccl;
}

StatusOr<std::string> DeviceAndLibraries(Session& session) {
  ASSIGN_OR_RETURN(const Device* const device, DeviceOf(session));
  if (device == nullptr) return std::string();
  std::string text = absl::StrCat(device->info().name, cuda::LibrariesText());
  ASSIGN_OR_RETURN(const std::shared_ptr<NcclWorld> nccl, NcclOf(session));
  if (const auto library = cuda::OpenNccl(); nccl != nullptr && library.ok()) {
    int version = 0;
    RETURN_IF_ERROR(cuda::CheckNccl(**library, (*library)->call.ncclGetVersion(&version), "ncclGetVersion"));
    absl::StrAppend(&text, ", NCCL ", cuda::NcclVersionText(version));
  }
  if (device->tf32().products) absl::StrAppend(&text, ", TF32 in products");
  if (device->tf32().convolutions) absl::StrAppend(&text, ", TF32 in convolutions");
  return text;
}

Status CheckNccl(Session& session) {
  ASSIGN_OR_RETURN(const std::shared_ptr<NcclWorld> nccl, NcclOf(session));
  if (nccl == nullptr) return absl::OkStatus();
  std::vector<int64_t> all(static_cast<size_t>(session.groups()->size()));
  for (size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int64_t>(r);
  return nccl->Get(all, "ms.communication.init").status();
}

}  // namespace mslua
