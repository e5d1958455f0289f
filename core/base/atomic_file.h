// Atomic files and folders: a reader sees the complete new content or the old one, also after a crash. Content is
// written under a temporary name in the same folder, synced, renamed, and the folder is synced too.
//
// A temporary name is `<name>.tmp-<pid>-<n>`. Its writer holds a lock (flock) on it as long as it lives, so that
// what a killed writer left behind can be told from a write under way: see RemoveLeftovers().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

// One file being written. Not thread-safe.
class AtomicFile {
 public:
  // Opens a temporary file beside `path`, whose folder must exist. A device or a pipe at `path` is opened itself: what
  // is written goes there at once, and it stays what it is. The file gets the permissions `mode`, or what the umask
  // leaves of 0666.
  static StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, std::optional<mode_t> mode = {});
  ~AtomicFile();  // removes the temporary file unless Commit() has succeeded
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends `size` bytes. Errors name the file and the cause (a full disk is RESOURCE_EXHAUSTED); after one the
  // file can only be given up.
  Status Write(const void* data, size_t size);
  // Puts the file in the place of whatever was at `path`. On an error `path` is as it was, unless the folder could not
  // be synced: then the new file is there, but a crash of the host may bring back the old one.
  Status Commit();
  // The same, but AlreadyExists where something is at `path`, which then stays.
  Status CommitNew();

 private:
  AtomicFile(std::string path, std::string beside, int fd)
      : path_(std::move(path)), beside_(std::move(beside)), fd_(fd) {}
  std::string path_;
  std::string beside_;  // empty: path_ itself is written
  int fd_;
  bool committed_ = false;
};

// Writes a whole file as AtomicFile does.
Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// A folder being filled. Its files need no renaming of their own, but must be forced to disk by their writers
// (an AtomicFile's Commit() does that).
class AtomicFolder {
 public:
  // Makes an empty temporary folder beside `path`, whose parent must exist. FailedPrecondition: a device or a pipe is
  // there.
  static StatusOr<std::unique_ptr<AtomicFolder>> Create(const std::string& path);
  ~AtomicFolder();  // removes the temporary folder and its files unless Commit() has succeeded
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where to put the files until Commit().
  const std::string& path() const { return beside_; }
  // Renames the folder to `path`. A folder that was there changes places with it at once and is then removed; what
  // cannot be removed stays under the temporary name. On file systems that cannot exchange names, such as NFS, there is
  // neither for a moment. Errors as for AtomicFile::Commit().
  Status Commit();

 private:
  Status Replace();
  AtomicFolder(std::string path, std::string beside, int fd)
      : path_(std::move(path)), beside_(std::move(beside)), fd_(fd) {}
  std::string path_;
  std::string beside_;
  int fd_;
  bool committed_ = false;
};

// Whether `name` (without folder) is a temporary name of this module.
bool IsTemporaryName(absl::string_view name);
// Removes from `folder` what writers that no longer live left behind, and returns how many; temporary files and
// folders whose writers live are left alone, and so is everything where the file system has no locks.
int RemoveLeftovers(const std::string& folder);
// Removes `path` and, when it is a folder, everything in it; symbolic links are not followed. One that is not
// there is fine.
Status RemoveTree(const std::string& path);
// The same, but `path` is gone at once: it first takes a temporary name, by which RemoveLeftovers() finds what is left
// if this process is killed meanwhile.
Status RemoveAtomically(const std::string& path);

}  // namespace mslua
