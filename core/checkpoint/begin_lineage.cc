#include "core/checkpoint/begin_lineage.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>

#include "absl/strings/escaping.h"
#include "core/checkpoint/checkpoint.h"

namespace mslua::checkpoint {
namespace {

StatusOr<std::string> NewRun() {
  std::string random(16, '\0');
  if (getrandom(&random[0], random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return absl::ErrnoToStatus(errno, "no random number from the system");
  }
  return absl::BytesToHexString(random);
}

// The folder of the one with the highest generation, of those in `directories` that `wanted` is true of; empty: none.
template <class Wanted>
std::string Newest(const std::vector<std::string>& directories, Wanted wanted) {
  std::string path;
  int64_t generation = 0;
  for (const std::string& directory : directories) {
    const auto names = ListCheckpoints(directory);
    if (!names.ok()) continue;
    for (const CheckpointName& name : *names) {
      if (!name.damage.ok() || !wanted(name.lineage) || (!path.empty() && name.lineage.generation <= generation))
        continue;
      path = name.path;
      generation = name.lineage.generation;
    }
  }
  return path;
}

// The run of `lineage`, and those that it came from.
std::set<std::string> RunsOf(const Lineage& lineage) {
  std::set<std::string> runs = {lineage.run};
  for (const Fork& fork : lineage.forks) runs.insert(fork.run);
  return runs;
}

}  // namespace

std::string NewestOfRun(const std::vector<std::string>& directories, const std::string& run) {
  return Newest(directories, [&](const Lineage& lineage) { return lineage.run == run; });
}

std::string NewestOfFamily(const std::string& directory, const std::string& resumed_from) {
  if (resumed_from.empty()) return "";
  const auto checkpoint = Checkpoint::OpenParts(resumed_from);
  if (!checkpoint.ok()) return "";
  const Lineage& resumed = (*checkpoint)->manifest().run.lineage;
  const std::set<std::string> came_from = RunsOf(resumed);
  return Newest({directory}, [&](const Lineage& lineage) {
    return came_from.count(lineage.run) > 0 || RunsOf(lineage).count(resumed.run) > 0;
  });
}

StatusOr<Lineage> BeginLineage(const std::vector<std::string>& directories, const std::string& resumed_from) {
  Lineage resumed;
  int64_t step = 0;
  if (!resumed_from.empty()) {
    const auto checkpoint = Checkpoint::OpenParts(resumed_from);
    if (!absl::IsNotFound(checkpoint.status())) RETURN_IF_ERROR(checkpoint.status());
    if (checkpoint.ok()) {
      resumed = (*checkpoint)->manifest().run.lineage;
      step = (*checkpoint)->manifest().run.step;
    }
  }
  Lineage next;
  next.generation = resumed.generation;
  bool inside = false, newer = false;
  for (const std::string& directory : directories) {
    const auto names = ListCheckpoints(directory);
    if (absl::IsNotFound(names.status())) continue;
    RETURN_IF_ERROR(names.status());
    for (const CheckpointName& name : *names) {
      std::error_code error;
      inside = inside || (!resumed_from.empty() && std::filesystem::equivalent(name.path, resumed_from, error));
      newer = newer || (name.lineage.run == resumed.run && name.lineage.generation > resumed.generation);
      next.generation = std::max(next.generation, name.lineage.generation);
    }
  }
  next.forks = resumed.forks;
  if (!resumed_from.empty()) {
    next.parent = std::filesystem::path(resumed_from + "/").parent_path().filename().string();
  }
  if (inside && !newer && !resumed.run.empty()) {
    next.run = resumed.run;
    return next;
  }
  if (!resumed_from.empty()) next.forks.push_back({resumed.run, resumed.generation, step});
  if (next.forks.size() > kMaxForks) next.forks.erase(next.forks.begin());
  ASSIGN_OR_RETURN(next.run, NewRun());
  return next;
}

}  // namespace mslua::checkpoint
