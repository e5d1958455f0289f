#include "lua/rank_lua.h"

#include <memory>

#include "collectives/groups.h"
#include "core/base/exit_code.h"
#include "launch/job.h"
#include "lua/object.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

// core.join(backend or nil, plaintext)
StatusOr<int> Join(lua_State* L, Session& session) {
  std::string backend;
  if (!lua_isnoneornil(L, 1)) {
    ASSIGN_OR_RETURN(backend, ReadString(L, 1, "join: backend"));
  }
  if (session.job != nullptr && lua_toboolean(L, 2) != 0) session.job->AllowPlaintext();
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

// core.speaks(): whether what all ranks have to say is this rank's to print.
StatusOr<int> Speaks(lua_State* L, Session& session) {
  lua_pushboolean(L, session.prints ? 1 : 0);
  return 1;
}

}  // namespace

Status JoinRanks(Session& session, const std::string& backend) {
  if (session.job == nullptr) return absl::OkStatus();
  auto world = session.job->Join(backend);
  if (!world.ok()) {
    const bool mistake = absl::IsInvalidArgument(world.status()) || absl::IsUnimplemented(world.status());
    return WithExitCode(world.status(), absl::IsPermissionDenied(world.status()) ? kExitSecurity
                                        : mistake                                ? kExitUsage
                                                                                 : kExitEnvironment);
  }
  if (*world == nullptr) return absl::OkStatus();
  auto groups = std::make_shared<Groups>(*std::move(world));
  if (session.hang_timeout_s > 0) groups->set_timeout(absl::Seconds(session.hang_timeout_s));
  session.SetGroups(std::move(groups));
  return absl::OkStatus();
}

void OpenRanks(lua_State* L) {
  SetFunctions(L, {{"join", Entry<Join>}, {"hosts", Entry<Hosts>}, {"speaks", Entry<Speaks>}});
}

}  // namespace mslua
