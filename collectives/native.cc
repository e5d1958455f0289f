#include "collectives/native.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/board.h"
#include "collectives/links.h"
#include "collectives/local_host.h"
#include "collectives/network.h"
#include "collectives/shared_memory.h"
#include "core/base/clock.h"
#include "core/base/hash.h"

namespace mslua {
namespace {

// A stranger that connects and says nothing holds the others up for no longer.
constexpr absl::Duration kGreetingLimit = absl::Seconds(5);

// First bytes on a connection, both ways.
struct Greeting {
  uint32_t magic = 0x6d736c74;
  uint32_t epoch;
  uint32_t job;
  int32_t rank;
};

Status Greet(const Fd& socket, const Greeting& mine, MonotonicTime deadline) {
  return SendAll(socket, {reinterpret_cast<const char*>(&mine), sizeof mine}, deadline);
}

// The rank at the other end.
StatusOr<int> Greeted(const Fd& socket, const Greeting& mine, MonotonicTime deadline) {
  Greeting theirs;
  RETURN_IF_ERROR(ReceiveAll(socket, &theirs, sizeof theirs, std::min(deadline, MonotonicNow() + kGreetingLimit)));
  if (theirs.magic != mine.magic || theirs.job != mine.job || theirs.epoch != mine.epoch) {
    return absl::PermissionDeniedError("who connected is not of this job and epoch");
  }
  return theirs.rank;
}

using Sockets = std::map<int, Fd>;  // by rank

// A socket to each rank of another host: to lower ranks by connecting, from higher ones by accepting.
StatusOr<Sockets> Connect(const NativeOptions& options, const Fd& listener) {
  const MonotonicTime deadline = MonotonicNow() + options.timeout;
  const std::string& here = options.peers[options.rank].host;
  Greeting mine;
  mine.epoch = options.epoch;
  mine.job = Crc32c(options.job.data(), options.job.size());
  mine.rank = options.rank;
  Sockets sockets;
  std::vector<int> missing;
  for (int r = 0; r < options.size; ++r) {
    if (options.peers[r].host == here) continue;
    if (r > options.rank) {
      missing.push_back(r);
      continue;
    }
    const std::string what =
        absl::StrCat("rank ", options.rank, ": rank ", r, " at ", ToString(options.peers[r].endpoint));
    auto socket = ConnectTcp(options.peers[r].endpoint, deadline);
    if (!socket.ok()) return Annotate(socket.status(), what);
    RETURN_IF_ERROR(Annotate(Greet(*socket, mine, deadline), what));
    const auto who = Greeted(*socket, mine, deadline);
    if (!who.ok()) return Annotate(who.status(), what);
    if (*who != r) return absl::InternalError(absl::StrCat(what, ": rank ", *who, " answers"));
    sockets[r] = std::move(*socket);
  }
  while (!missing.empty()) {
    auto socket = AcceptTcp(listener, deadline);
    if (!socket.ok()) {
      return Status(socket.status().code(),
                    absl::StrCat("rank ", options.rank, ": ranks ", absl::StrJoin(missing, ", "),
                                 " of other hosts have not come within ", absl::FormatDuration(options.timeout)));
    }
    const auto who = Greeted(*socket, mine, deadline);
    const auto place = who.ok() ? std::find(missing.begin(), missing.end(), *who) : missing.end();
    if (place == missing.end() || !Greet(*socket, mine, deadline).ok()) continue;  // a stranger
    missing.erase(place);
    sockets[*who] = std::move(*socket);
  }
  return sockets;
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> MakeNativeWorld(const NativeOptions& options, const Fd& listener) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.size, ": expected 0 <= rank < size"));
  }
  if (!options.peers.empty() && static_cast<int>(options.peers.size()) != options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.peers.size(), " addresses for ", options.size, " ranks: expected one for each"));
  }
  std::vector<int> all;
  LocalHostOptions local;
  for (int r = 0; r < options.size; ++r) {
    all.push_back(r);
    if (options.peers.empty() || options.peers[r].host == options.peers[options.rank].host) local.ranks.push_back(r);
  }
  local.rank = options.rank;
  local.folder = options.folder;
  local.epoch = options.epoch;
  local.timeout = options.timeout;
  local.fetch = options.fetch;
  const bool one_host = local.ranks.size() == all.size();
  if (!one_host && !listener) return absl::InvalidArgumentError("ranks of other hosts need a listener");
  ASSIGN_OR_RETURN(std::shared_ptr<Host> host, MakeLocalHost(local));
  auto recorder = std::make_shared<FlightRecorder>();
  const int place =
      static_cast<int>(std::find(local.ranks.begin(), local.ranks.end(), options.rank) - local.ranks.begin());
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> here,
                   MakeSharedMemoryCommunicator(std::move(host), local.ranks, place, one_host ? "world" : "host",
                                                options.epoch, recorder, options.timeout));
  if (one_host) return here;
  NetworkGroup group;
  group.members = std::move(all);
  group.place = options.rank;
  group.key = "world";
  group.epoch = options.epoch;
  group.local = std::move(here);
  group.local_members = local.ranks;
  std::vector<std::string> hosts;
  for (const NativePeer& peer : options.peers) hosts.push_back(peer.host);
  std::sort(hosts.begin(), hosts.end());
  group.one_a_host = std::adjacent_find(hosts.begin(), hosts.end()) == hosts.end();
  ASSIGN_OR_RETURN(Sockets sockets, Connect(options, listener));
  group.links = std::make_shared<Links>(std::move(sockets), local.ranks.size() <= UsableCores());
  group.recorder = std::move(recorder);
  return MakeNetworkCommunicator(std::move(group));
}

}  // namespace mslua
