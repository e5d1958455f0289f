// Backend native: processes of one host through shared memory, hosts through TCP, chosen pair by pair.
//
// On a host every board and segment is a memfd, sealed, allocated in full and handed over a unix socket: nothing has
// a name that could be left behind, and the descriptor dies with its last process. The sockets stay open, so that a
// peer's death is seen as its end of file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "rendezvous/rank_address.h"
#include "rendezvous/tls/tls.h"

namespace mslua {

struct NativeOptions {
  int rank = 0;
  int size = 1;
  // For the unix sockets (MakeSocketFolder); the same for all ranks of a host and for no other job.
  std::string folder;
  uint32_t epoch = 0;                          // of the membership; ranks of different epochs do not meet
  absl::Duration timeout = absl::Seconds(30);  // to meet all ranks
  // Of all ranks, as the rendezvous gives them; empty: all on this host.
  std::vector<RankAddress> peers;
  // Ranks of this host may read this rank's memory (process_vm_readv), where the system permits it; else what is not
  // in shared memory goes through windows.
  bool fetch = true;
  // With ranks of other hosts: the job's name, the same for all of its ranks and unlike other jobs', and its secret,
  // which both ends of each connection prove to know.
  std::string job, secret;
  // Encrypts connections to ranks of other hosts; null: not. With it the secret may be empty.
  std::shared_ptr<Tls> tls;
  std::function<void(const std::string&)> log;  // lines about refused connections
};

// The world. Called by every rank; `listener` is the one of this rank's endpoint, needed when there are other hosts.
// DeadlineExceeded names the ranks that have not come. PermissionDenied: another rank does not know the job's secret,
// or one refuses the other's certificate. Without TLS bytes between hosts are neither encrypted nor authenticated: who
// can change packets on their way can change tensors.
StatusOr<std::unique_ptr<Communicator>> MakeNativeWorld(const NativeOptions& options, const Fd& listener = Fd());

}  // namespace mslua
