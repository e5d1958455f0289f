#include "lua/rank_lua.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/backends/registry.h"
#include "collectives/groups.h"
#include "core/base/exit_code.h"
#include "core/device/device.h"
#include "launch/job.h"
#include "lua/device.h"
#include "lua/object.h"
#include "lua/options.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

// core.join(backend or nil, network or nil), network as ps_context.network() gives it
StatusOr<int> Join(lua_State* L, Session& session) {
  std::string backend;
  if (!lua_isnoneornil(L, 1)) {
    ASSIGN_OR_RETURN(backend, ReadString(L, 1, "join: backend"));
  }
  if (session.job != nullptr && lua_istable(L, 2)) {
    NetworkOptions network;
    ASSIGN_OR_RETURN(const bool plaintext, FieldBool(L, 2, "plaintext", false));
    if (plaintext) network.plaintext = true;
    ASSIGN_OR_RETURN(network.tls_file, FieldString(L, 2, "tls_file", ""));
    ASSIGN_OR_RETURN(network.client_password, FieldString(L, 2, "client_password", ""));
    ASSIGN_OR_RETURN(network.server_password, FieldString(L, 2, "server_password", ""));
    session.job->SetNetwork(network);
  }
  RETURN_IF_ERROR(JoinRanks(session, backend));
  return 0;
}

// core.hosts(): a name for each rank's host, by rank from 1; nil when they are not known.
StatusOr<int> Hosts(lua_State* L, Session& session) {
  if (session.job == nullptr) return 0;
  lua_newtable(L);
  const auto& hosts = session.job->hosts();
  for (size_t r = 0; r < hosts.size(); ++r) {
    PushString(L, hosts[r]);
    lua_rawseti(L, -2, static_cast<int>(r) + 1);
  }
  return 1;
}

// core.started_ranks(): ranks of the job as it was started, whether this one has joined them or not.
StatusOr<int> StartedRanks(lua_State* L, Session& session) {
  lua_pushinteger(L, session.job == nullptr ? session.state().ranks : session.job->size());
  return 1;
}

// core.device_problem(): why graphs cannot run on a CUDA device here, or nil.
StatusOr<int> DeviceProblem(lua_State* L, Session&) {
  const Status problem = CheckDevices();
  if (problem.ok()) return 0;
  PushString(L, std::string(problem.message()));
  return 1;
}

// core.allow_ranks(min, max): the numbers of ranks that the job may continue with, as its recipe says.
StatusOr<int> AllowRanks(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t least, ReadInt(L, 1, "elastic.min"));
  ASSIGN_OR_RETURN(const int64_t most, ReadInt(L, 2, "elastic.max"));
  if (session.job != nullptr) RETURN_IF_ERROR(session.job->AllowRanks(least, most, /*recipe=*/true));
  return 0;
}

// core.private_network(): whether nothing that goes to other hosts can be read on its way.
StatusOr<int> PrivateNetwork(lua_State* L, Session& session) {
  lua_pushboolean(L, session.job == nullptr || session.job->private_network() ? 1 : 0);
  return 1;
}

// core.tls_given(): whether the command line or the environment names a TLS configuration.
StatusOr<int> TlsGiven(lua_State* L, Session& session) {
  lua_pushboolean(L, session.job != nullptr && session.job->tls_given() ? 1 : 0);
  return 1;
}

// core.speaks(): whether what all ranks have to say is this rank's to print.
StatusOr<int> Speaks(lua_State* L, Session& session) {
  lua_pushboolean(L, session.prints ? 1 : 0);
  return 1;
}

// The kind of devices that a backend is for; empty: it is for ranks of the host, or none is named.
StatusOr<std::string> DeviceOfBackend(const std::string& backend) {
  if (backend.empty()) return std::string();
  ASSIGN_OR_RETURN(const BackendDef* const def, FindBackend(backend));
  return def->device;
}

// core.backends(): a table {name, device} for each backend of collectives; device: nil, or the kind it is for.
StatusOr<int> BackendsOfBuild(lua_State* L, Session&) {
  lua_newtable(L);
  for (size_t i = 0; i < Backends().size(); ++i) {
    const BackendDef& backend = Backends()[i];
    lua_createtable(L, 0, 2);
    PushString(L, backend.name);
    lua_setfield(L, -2, "name");
    if (!backend.device.empty()) {
      PushString(L, backend.device);
      lua_setfield(L, -2, "device");
    }
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  return 1;
}

}  // namespace

Status JoinRanks(Session& session, const std::string& backend) {
  if (session.job == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string kind, WithExitCode(DeviceOfBackend(backend), kExitUsage));
  if (!kind.empty() && OptionString(session.lua(), "device") != kind && session.options().device != kind)
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            "the back end ", backend, " is for devices of the kind ", kind, ": add --device ", kind)),
                        kExitUsage);
  const std::string before = std::exchange(session.backend, backend.empty() ? session.backend : backend);
  ASSIGN_OR_RETURN(const std::string kind_before, DeviceOfBackend(before));
  if (before != session.backend && !before.empty() && (!kind.empty() || !kind_before.empty()))
    return WithExitCode(absl::InvalidArgumentError(
                            absl::StrCat("the ranks are joined by the back end ", before, " already, not ", backend)),
                        kExitUsage);
  // Beside the backend of devices there is that of the host which the launch decides on.
  auto world = session.job->Join(kind.empty() ? backend : "");
  if (!world.ok()) {
    const bool mistake = absl::IsInvalidArgument(world.status()) || absl::IsUnimplemented(world.status());
    return WithExitCode(world.status(), absl::IsPermissionDenied(world.status()) ? kExitSecurity
                                        : mistake                                ? kExitUsage
                                                                                 : kExitEnvironment);
  }
  if (*world != nullptr) {
    auto groups = std::make_shared<Groups>(*std::move(world));
    if (session.hang_timeout_s > 0) groups->set_timeout(absl::Seconds(session.hang_timeout_s));
    session.SetGroups(std::move(groups));
  } else if (session.job->joined() && session.job->size() == 1) {
    session.SetPlace(0, 1);
  }
  // From the command line it is checked with the first graph: a script may name a device before.
  return !kind.empty() && OptionString(session.lua(), "device") == kind ? CheckNccl(session) : absl::OkStatus();
}

void OpenRanks(lua_State* L) {
  SetFunctions(L, {{"join", Entry<Join>},
                   {"backends", Entry<BackendsOfBuild>},
                   {"hosts", Entry<Hosts>},
                   {"started_ranks", Entry<StartedRanks>},
                   {"speaks", Entry<Speaks>},
                   {"device_problem", Entry<DeviceProblem>},
                   {"allow_ranks", Entry<AllowRanks>},
                   {"private_network", Entry<PrivateNetwork>},
                   {"tls_given", Entry<TlsGiven>}});
}

}  // namespace mslua
