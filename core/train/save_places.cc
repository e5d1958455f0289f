#include "core/train/save_places.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "core/base/atomic_file.h"
#include "core/base/folder.h"
#include "core/checkpoint/begin_lineage.h"
#include "core/checkpoint/manifest.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

constexpr char kWhat[] = "the checkpoints' directories";
constexpr char kGood = '+';

// A folder in `directory` that other ranks look for. It is removed when it goes, and by the next start if this process
// is killed.
StatusOr<std::unique_ptr<AtomicFolder>> LeaveMark(const std::string& directory) {
  RETURN_IF_ERROR(MakeFolders(directory));
  std::string random(16, '\0');
  if (getrandom(&random[0], random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return absl::ErrnoToStatus(errno, "no random number from the system");
  }
  return AtomicFolder::Create(absl::StrCat(directory, "/rank_", absl::BytesToHexString(random)));
}

// The ranks' texts without their first byte, kGood; an error that names the first rank whose text is another one.
StatusOr<std::vector<std::string>> GatherGood(Groups& groups, const StatusOr<std::string>& mine) {
  ASSIGN_OR_RETURN(auto all,
                   GatherTexts(groups, mine.ok() ? kGood + *mine : std::string(mine.status().message()), kWhat));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty() || all[r][0] != kGood) return absl::UnavailableError(absl::StrCat("rank ", r, ": ", all[r]));
    all[r].erase(0, 1);
  }
  return all;
}

}  // namespace

StatusOr<std::vector<int>> FindSavePlaces(Groups& groups, const std::string& directory) {
  const auto mark = LeaveMark(directory);
  const auto name_of = [&]() -> StatusOr<std::string> {
    RETURN_IF_ERROR(mark.status());
    return std::filesystem::path((*mark)->path()).filename().string();
  };
  ASSIGN_OR_RETURN(const auto names, GatherGood(groups, name_of()));
  int lowest = 0;
  std::error_code error;
  while (lowest < groups.rank() && !std::filesystem::exists(absl::StrCat(directory, "/", names[lowest]), error)) {
    ++lowest;
  }
  ASSIGN_OR_RETURN(const auto leaders, GatherGood(groups, absl::StrCat(lowest)));  // all have looked: the mark may go
  std::vector<int> places;
  for (const std::string& leader : leaders) places.push_back(std::stoi(leader));
  return places;
}

StatusOr<checkpoint::Lineage> ShareLineage(Groups& groups, const std::string& directory,
                                           const std::string& resumed_from) {
  const std::vector<std::string> directories = {directory, directory + "/best"};
  const auto begin = [&]() -> StatusOr<std::string> {
    if (directory.empty()) return std::string();
    checkpoint::Manifest manifest;
    ASSIGN_OR_RETURN(manifest.run.lineage, checkpoint::BeginLineage(directories, resumed_from));
    return checkpoint::SerializeManifest(manifest);
  };
  ASSIGN_OR_RETURN(const auto lineages, GatherGood(groups, begin()));
  checkpoint::Lineage shared;
  int64_t generation = 0;
  for (const std::string& text : lineages) {
    if (text.empty()) continue;
    ASSIGN_OR_RETURN(checkpoint::Lineage lineage, checkpoint::ParseLineage(text));
    generation = std::max(generation, lineage.generation);
    if (shared.run.empty()) shared = std::move(lineage);
  }
  shared.generation = generation;
  return shared;
}

}  // namespace mslua
