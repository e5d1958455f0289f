#include "train/run_records.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <initializer_list>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/folder.h"
#include "core/data/file.h"
#include "core/files/record_file.h"
#include "core/train/summaries.h"
#include "train/recoveries.h"
#include "train/run_folder.h"

namespace mslua {
namespace {

// Whether `name` is "rank_<r>" with one of `endings` behind it, for a rank whose files are meant.
bool IsOfRank(absl::string_view name, RecordsOwner owner, std::initializer_list<absl::string_view> endings) {
  int rank = 0;
  if (!absl::ConsumePrefix(&name, "rank_")) return false;
  for (const absl::string_view ending : endings) {
    absl::string_view digits = name;
    if (!absl::ConsumeSuffix(&digits, ending) || !absl::SimpleAtoi(digits, &rank)) continue;
    return rank == owner.rank || (owner.first && rank >= owner.ranks);
  }
  return false;
}

bool IsRecord(const std::string& name, RecordsOwner owner) {
  return (owner.first && IsSharedRecord(name)) || IsOfRank(name, owner, {kRunLog});
}

// What goes with the records and is none.
bool GoesWithRecords(const std::string& name, RecordsOwner owner) {
  return (owner.first && IsBesideRecords(name)) || IsOfRank(name, owner, {kRunLaunch, kRunCrash});
}

// Paths of the records that are there.
StatusOr<std::vector<std::string>> RecordsOf(const std::string& folder, RecordsOwner owner) {
  std::vector<std::string> paths;
  if (!IsFolder(folder)) return paths;  // of a rank in another folder than the first, which makes its own later
  ASSIGN_OR_RETURN(const std::vector<std::string> names, data::ListFolder(folder));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    struct stat info;
    if (IsRecord(name, owner) && stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
      paths.push_back(path);
  }
  return paths;
}

}  // namespace

std::string EarlierFolder(const std::string& folder) {
  struct stat info;
  for (int n = 1;; ++n) {
    std::string name = absl::StrCat(kRunEarlier, n);
    if (lstat(absl::StrCat(folder, "/", name).c_str(), &info) != 0) return name;
  }
}

StatusOr<bool> MoveRecords(const std::string& folder, const std::string& earlier, RecordsOwner owner) {
  ASSIGN_OR_RETURN(std::vector<std::string> paths, RecordsOf(folder, owner));
  if (paths.empty()) return false;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, data::ListFolder(folder));
  for (const std::string& name : names) {
    if (GoesWithRecords(name, owner)) paths.push_back(absl::StrCat(folder, "/", name));
  }
  const std::string to = absl::StrCat(folder, "/", earlier);
  RETURN_IF_ERROR(MakeFolders(to));
  for (const std::string& path : paths) {
    if (rename(path.c_str(), absl::StrCat(to, path.substr(path.rfind('/'))).c_str()) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot move ", path, " to ", to));
  }
  return true;
}

Status EmptyRecords(const std::string& folder, RecordsOwner owner) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, RecordsOf(folder, owner));
  for (const std::string& path : paths)
    RETURN_IF_ERROR(absl::EndsWith(path, kRunEvents) ? TruncateEvents(path, 0) : TruncateRecords(path, 0));
  return absl::OkStatus();
}

}  // namespace mslua
