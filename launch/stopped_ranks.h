// Ranks of this job on this host that a signal has stopped, found among the system's processes.
//
// Where ranks are connected, heartbeats tell (rendezvous/heartbeat_timeout.h). This is for the time when they are not:
// before they have met, when a stopped rank looks like one that nobody has started yet, and in MPI_Init.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "core/base/status.h"
#include "rendezvous/identity.h"

namespace mslua {

struct StoppedRank {
  pid_t pid = 0;
  int rank = -1;     // -1: the scheduler would have assigned it
  std::string name;  // "rank 1/2 (pid 812, host a)"
};

// The processes under `proc` ("/proc") that run the same program as this one for the same user, were started as ranks
// of the same job (the variables that say so are equal to those of `environment`) and are stopped by a signal now.
// This process is not among them.
std::vector<StoppedRank> FindStoppedRanks(const Environment& environment, const std::string& proc = "/proc");

// Looks for them twice a second, as long as it lives.
class StoppedRankWatch {
 public:
  // `found` is called once, on a thread of the watch's, with an error that names a rank that has been stopped for
  // `limit`; its Cause is that rank and kExitHang.
  StoppedRankWatch(Environment environment, absl::Duration limit, std::function<void(const Status&)> found);
  ~StoppedRankWatch();

 private:
  void Run();

  const Environment environment_;
  const absl::Duration limit_;
  const std::function<void(const Status&)> found_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace mslua
