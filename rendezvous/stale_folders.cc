#include "rendezvous/stale_folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "rendezvous/socket.h"

namespace mslua {
namespace {

std::mutex mutex;
std::map<std::string, int> held;  // descriptors by folder

int Open(const std::string& folder) { return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

// What mslua puts there has no folders in it.
void RemoveFlatFolder(const std::string& folder, int fd) {
  const int listed = dup(fd);
  DIR* const entries = listed < 0 ? nullptr : fdopendir(listed);
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] != '.') unlinkat(fd, entry->d_name, 0);
  }
  closedir(entries);
  rmdir(folder.c_str());
}

}  // namespace

bool IsThere(int fd, const std::string& folder) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && lstat(folder.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

StatusOr<std::string> MakeHeldFolder(absl::string_view job) {
  ASSIGN_OR_RETURN(const std::string root, SocketRoot());
  RemoveStaleFolders(root);
  // A folder may be taken for a stale one in the moment before it is held, also while it is being made.
  constexpr int kTries = 100;
  Status last =
      absl::UnavailableError(absl::StrCat("the folder of job ", job, " in ", root, " is removed again and again"));
  for (int i = 0; i < kTries; ++i) {
    const auto folder = MakeSocketFolder(job);
    if (folder.ok() && HoldFolder(*folder)) return folder;
    if (absl::IsPermissionDenied(folder.status()) || absl::IsInvalidArgument(folder.status())) return folder.status();
    if (!folder.ok()) last = folder.status();
  }
  return last;
}

bool HoldFolder(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (held.count(folder) > 0) {
    close(held[folder]);
    held.erase(folder);
  }
  const int fd = Open(folder);
  if (fd < 0) return false;
  (void)flock(fd, LOCK_SH);  // a file system without locks: nothing is ever taken for stale
  if (!IsThere(fd, folder)) {
    close(fd);
    return false;
  }
  held[folder] = fd;
  return true;
}

void ReleaseFolder(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = held.find(folder);
  if (found == held.end()) return;
  close(found->second);
  held.erase(found);
}

bool RemoveStaleFolder(const std::string& folder, int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || info.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) != 0) return false;
  // Another process may have removed it since it was opened, and a third may hold a new one of that name.
  if (!IsThere(fd, folder)) return false;
  RemoveFlatFolder(folder, fd);
  return true;
}

int RemoveStaleFolders(const std::string& root) {
  DIR* const entries = opendir(root.c_str());
  if (entries == nullptr) return 0;
  int removed = 0;
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] == '.') continue;
    const std::string folder = absl::StrCat(root, "/", entry->d_name);
    const int fd = Open(folder);
    if (fd < 0) continue;
    removed += RemoveStaleFolder(folder, fd);
    close(fd);
  }
  closedir(entries);
  return removed;
}

}  // namespace mslua
