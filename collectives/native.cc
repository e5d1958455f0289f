#include "collectives/native.h"

#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/local_host.h"
#include "collectives/shared_memory.h"

namespace mslua {

StatusOr<std::unique_ptr<Communicator>> MakeNativeWorld(const NativeOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " of ", options.size, ": expected 0 <= rank < size"));
  }
  LocalHostOptions local;
  local.rank = options.rank;
  local.ranks.resize(options.size);
  std::iota(local.ranks.begin(), local.ranks.end(), 0);
  local.folder = options.folder;
  local.epoch = options.epoch;
  local.timeout = options.timeout;
  ASSIGN_OR_RETURN(std::shared_ptr<Host> host, MakeLocalHost(local));
  return MakeSharedMemoryCommunicator(std::move(host), local.ranks, options.rank, "world", options.epoch,
                                      std::make_shared<FlightRecorder>(), options.timeout);
}

}  // namespace mslua
