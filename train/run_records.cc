#include "train/run_records.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/folder.h"
#include "core/data/file.h"
#include "core/files/record_file.h"
#include "core/train/summaries.h"
#include "train/recoveries.h"
#include "train/run_folder.h"

namespace mslua {
namespace {

// Paths of the records that are there.
StatusOr<std::vector<std::string>> RecordsOf(const std::string& folder, RecordsOwner owner) {
  const std::string log = absl::StrCat("rank_", owner.rank, ".log");
  std::vector<std::string> paths;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, data::ListFolder(folder));
  for (const std::string& name : names) {
    const bool shared = name == kRunMetrics || name == kRunMatrices || name == kRunEvents || name == kSummaries ||
                        name == kRunSamples || absl::StartsWith(name, "events.out.tfevents.");
    const std::string path = absl::StrCat(folder, "/", name);
    struct stat info;
    if ((name == log || (owner.first && shared)) && stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        info.st_size > 0)
      paths.push_back(path);
  }
  return paths;
}

}  // namespace

std::string EarlierFolder(const std::string& folder) {
  struct stat info;
  for (int n = 1;; ++n) {
    std::string name = absl::StrCat("earlier-", n);
    if (lstat(absl::StrCat(folder, "/", name).c_str(), &info) != 0) return name;
  }
}

StatusOr<bool> MoveRecords(const std::string& folder, const std::string& earlier, RecordsOwner owner) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, RecordsOf(folder, owner));
  if (paths.empty()) return false;
  const std::string to = absl::StrCat(folder, "/", earlier);
  RETURN_IF_ERROR(MakeFolders(to));
  const std::string crash = absl::StrCat("/rank_", owner.rank, kRunCrash);
  rename(absl::StrCat(folder, crash).c_str(), absl::StrCat(to, crash).c_str());  // if there is one
  for (const std::string& path : paths) {
    if (rename(path.c_str(), absl::StrCat(to, path.substr(path.rfind('/'))).c_str()) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot move ", path, " to ", to));
  }
  return true;
}

Status EmptyRecords(const std::string& folder, RecordsOwner owner) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, RecordsOf(folder, owner));
  for (const std::string& path : paths)
    RETURN_IF_ERROR(absl::EndsWith(path, kRunEvents) ? CutEvents(path, 0) : CutRecords(path, 0));
  return absl::OkStatus();
}

}  // namespace mslua
