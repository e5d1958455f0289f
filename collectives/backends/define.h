// For the folders here: each has one backend. Nothing else is edited: the build finds the folder x by its file x.cc,
// where MSLUA_BACKEND(x) stands, and --backend, ms.communication.init, `mslua doctor` and their messages take the
// backend from this definition (docs/howto/add_a_backend.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "core/base/status.h"
#include "rendezvous/rank_address.h"
#include "rendezvous/tls/tls.h"

namespace mslua {

// What the ranks of a job know of one another when they are connected.
struct ConnectOptions {
  int rank = 0, size = 1;
  std::vector<RankAddress> peers;  // of all ranks
  const Fd* listener = nullptr;    // of this rank's endpoint; null where all ranks are on one host
  // The job's name, the same for all of its ranks and unlike other jobs'; a folder of it for the ranks of this host;
  // and its secret, which ranks of several hosts share.
  std::string job, folder, secret;
  std::shared_ptr<Tls> tls;                          // null: connections to other hosts are not encrypted
  std::string interface;                             // the network interface or subnet that the user chose; empty: none
  absl::Duration timeout = absl::Seconds(30);        // to meet all ranks
  std::function<void(const std::string& line)> log;  // for people
  std::function<void(const Status& why)> stuck;      // ends the process, where nothing else can end a call
};

struct BackendDef {
  explicit BackendDef(std::string backend) : name(std::move(backend)) {}

  std::string name;  // --backend NAME
  // What it runs on here ("Open MPI 4.1.4, libmpi.so.40"), or why it cannot run. Anywhere, without other ranks.
  std::function<StatusOr<std::string>()> available;
  std::string without;  // what a machine that lacks it cannot do, for `mslua doctor`
  // Connects the ranks: the world communicator. Called by every rank. Empty for a backend of devices.
  std::function<StatusOr<std::unique_ptr<Communicator>>(const ConnectOptions&)> make;
  // The program that must have started the ranks, through which they meet: then there are neither peers, job nor
  // secret. Empty: the job brings the ranks together.
  std::string launcher;
  // Encrypts connections to other hosts where there is TLS. Else a job with TLS refuses the backend there.
  bool encrypts = false;
  // Of the devices of this kind ("cuda"): beside a backend of the host, which the launch chooses. Empty: of the host.
  std::string device;
};

}  // namespace mslua

// collectives/backends/native/native.cc:  MSLUA_BACKEND(native) { BackendDef def("native"); ... return def; }
#define MSLUA_BACKEND(name) BackendDef Backend_##name()
