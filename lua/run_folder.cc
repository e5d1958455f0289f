#include "lua/run_folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/folder.h"

namespace mslua {

StatusOr<std::string> NewRunFolder(const std::string& name) {
  RETURN_IF_ERROR(MakeFolders("runs"));
  const std::time_t now = std::time(nullptr);
  std::tm local;
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  for (int copy = 1; copy < 1000; ++copy) {
    const std::string path = absl::StrCat("runs/", name, "-", stamp, copy > 1 ? absl::StrCat("-", copy) : "");
    if (mkdir(path.c_str(), 0777) == 0) {
      RETURN_IF_ERROR(MakeFolders(path));  // its entry is on disk
      return path;
    }
    if (errno != EEXIST)
      return absl::InvalidArgumentError(absl::StrCat("cannot make the run folder ", path, ": ", std::strerror(errno)));
  }
  return absl::InvalidArgumentError(absl::StrCat("too many run folders runs/", name, "-", stamp));
}

StatusOr<std::string> LastRunFolder(const std::string& name) {
  std::string newest;
  timespec newest_time = {};
  if (DIR* runs = opendir("runs")) {
    while (const dirent* entry = readdir(runs)) {
      if (!name.empty() && !absl::StartsWith(entry->d_name, name + "-")) continue;
      const std::string path = absl::StrCat("runs/", entry->d_name);
      struct stat info;
      if (stat((path + "/ckpt").c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
      const timespec t = info.st_mtim;
      if (newest.empty() || t.tv_sec > newest_time.tv_sec ||
          (t.tv_sec == newest_time.tv_sec && t.tv_nsec > newest_time.tv_nsec)) {
        newest = path;
        newest_time = t;
      }
    }
    closedir(runs);
  }
  if (newest.empty())
    return absl::NotFoundError(
        absl::StrCat("no run folder with checkpoints under runs/", name.empty() ? "" : absl::StrCat(name, "-*")));
  return newest;
}

}  // namespace mslua
