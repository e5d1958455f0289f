#include "collectives/backends/native/native.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "collectives/backends/define.h"
#include "collectives/host/board.h"
#include "collectives/host/local_host.h"
#include "collectives/host/shared_memory.h"
#include "collectives/net/links.h"
#include "collectives/net/network.h"
#include "core/base/clock.h"
#include "rendezvous/admission.h"
#include "rendezvous/handshake.h"

namespace mslua {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kFirstPause = absl::Milliseconds(10), kLongestPause = absl::Seconds(1);  // between attempts

using Sockets = std::map<int, Stream>;  // by rank

ConnectionUse UseOf(const NativeOptions& options, int from, int to) {
  ConnectionUse use;
  use.kind = ConnectionUse::Kind::kData;
  use.job = options.job;
  use.epoch = options.epoch;
  use.from = from;
  use.to = to;
  return use;
}

// A connection to rank `r`, which closes those that it has no place for: such an attempt is repeated.
StatusOr<Stream> Dial(const NativeOptions& options, int r, MonotonicTime deadline) {
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto socket = ConnectStream(options.peers[r].endpoint, options.tls.get(), deadline);
    Status known = socket.status();
    if (known.ok()) known = Authenticate(*socket, options.secret, UseOf(options, options.rank, r), deadline).status();
    if (known.ok()) return socket;
    if (!absl::IsUnavailable(known) || MonotonicNow() >= deadline) return known;
    absl::SleepFor(pause);
  }
}

// Connects to the ranks of other hosts below this one.
StatusOr<Sockets> DialLower(const NativeOptions& options, MonotonicTime deadline) {
  Sockets sockets;
  for (int r = 0; r < options.rank; ++r) {
    if (options.peers[r].host == options.peers[options.rank].host) continue;
    auto socket = Dial(options, r, deadline);
    if (!socket.ok()) {
      return Annotate(socket.status(),
                      absl::StrCat("rank ", options.rank, ": rank ", r, " at ", ToString(options.peers[r].endpoint)));
    }
    sockets[r] = std::move(*socket);
  }
  return sockets;
}

// Accepts connections of the ranks of other hosts above this one, until all have come or `stop`.
StatusOr<Sockets> AcceptHigher(const NativeOptions& options, const Fd& listener, MonotonicTime deadline,
                               const std::atomic<bool>& stop) {
  Sockets sockets;
  std::set<int> missing;
  for (int r = options.rank + 1; r < options.size; ++r) {
    if (options.peers[r].host != options.peers[options.rank].host) missing.insert(r);
  }
  AdmissionOptions admitted;
  admitted.secret = options.secret;
  admitted.tls = options.tls;
  admitted.log = options.log;
  admitted.refusal = [&](const ConnectionUse& use) -> std::string {
    if (use.kind != ConnectionUse::Kind::kData) return "this is a rank, and it asked for a scheduler";
    if (use.job != options.job || use.epoch != options.epoch) return "it is of another job or epoch";
    if (use.to != options.rank) return absl::StrCat("it asked for rank ", use.to, ", this is rank ", options.rank);
    return missing.count(use.from) > 0 ? "" : absl::StrCat("rank ", use.from, " is not awaited");
  };
  Admission admission(listener, admitted);
  while (!missing.empty() && !stop) {
    std::vector<pollfd> entries;
    admission.Poll(&entries);
    const absl::Duration limit = std::min({kTick, admission.PollLimit(), deadline - MonotonicNow()});
    if (limit < absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", options.rank, ": ranks ", absl::StrJoin(missing, ", "),
                                                      " of other hosts have not come within ",
                                                      absl::FormatDuration(options.timeout)));
    }
    poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(limit)) + 1);
    for (Admission::Newcomer& newcomer : admission.Take(entries.data())) {
      // Two that prove to be one rank: the first has the place.
      if (missing.erase(newcomer.use.from) > 0 && newcomer.rest.empty()) {
        sockets[newcomer.use.from] = std::move(newcomer.socket);
      }
    }
  }
  return sockets;
}

// A socket to each rank of another host. Both at once: who waits for a lower rank is not deaf to higher ones.
StatusOr<Sockets> Connect(const NativeOptions& options, const Fd& listener) {
  const MonotonicTime deadline = MonotonicNow() + options.timeout;
  std::atomic<bool> stop{false};
  StatusOr<Sockets> accepted = Sockets();
  std::thread accepting([&] { accepted = AcceptHigher(options, listener, deadline, stop); });
  StatusOr<Sockets> dialled = DialLower(options, deadline);
  stop = !dialled.ok();
  accepting.join();
  if (!dialled.ok()) return dialled;
  if (!accepted.ok()) return accepted;
  dialled->merge(*accepted);
  return dialled;
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
  if (!one_host && (!listener || options.job.empty() || (options.secret.empty() && options.tls == nullptr))) {
    return absl::InvalidArgumentError("ranks of other hosts need a listener, a job and its secret, or TLS");
  }
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
  for (const RankAddress& peer : options.peers) hosts.push_back(peer.host);
  std::sort(hosts.begin(), hosts.end());
  group.one_a_host = std::adjacent_find(hosts.begin(), hosts.end()) == hosts.end();
  ASSIGN_OR_RETURN(Sockets sockets, Connect(options, listener));
  group.links = std::make_shared<Links>(std::move(sockets), local.ranks.size() <= UsableCores());
  group.recorder = std::move(recorder);
  return MakeNetworkCommunicator(std::move(group));
}

MSLUA_BACKEND(native) {
  BackendDef def("native");
  def.available = []() -> StatusOr<std::string> {
    return std::string("shared memory within a host, TCP between hosts");
  };
  def.encrypts = true;
  def.make = [](const ConnectOptions& job) {
    NativeOptions options;
    options.rank = job.rank;
    options.size = job.size;
    options.peers = job.peers;
    options.job = job.job;
    options.folder = job.folder;
    options.secret = job.secret;
    options.tls = job.tls;
    options.timeout = job.timeout;
    options.log = job.log;
    return job.listener != nullptr ? MakeNativeWorld(options, *job.listener) : MakeNativeWorld(options);
  };
  return def;
}

}  // namespace mslua
