// A lock on a folder's file, held by one process of all that see the file system.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "core/base/status.h"

namespace mslua {

// Ends with the object, and with the process however that ends. Over NFS the lock is the server's: it works from
// version 3 on where the server runs its lock service; with the mount option `nolock` each host has locks of its own.
class FileLock {
 public:
  // Makes the file `path`, whose folder must exist, and locks it; writes into it who holds it. A process that is about
  // to end is waited for, at most `wait`. UNAVAILABLE: another one holds it; the message says which. A file system
  // without locks gives an object that is not locked().
  static StatusOr<std::unique_ptr<FileLock>> Acquire(const std::string& path, absl::Duration wait = absl::Seconds(3));
  // Whether another process, or an object of this one, holds the lock `path` now. Changes nothing; false where the file
  // is missing or its file system has no locks.
  static bool IsHeld(const std::string& path);
  ~FileLock();  // the file stays
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool locked() const { return locked_; }

 private:
  FileLock(int fd, bool locked) : fd_(fd), locked_(locked) {}
  const int fd_;
  const bool locked_;
};

}  // namespace mslua
