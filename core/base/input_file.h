// A regular file open for reading at any offset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"

namespace mslua {

// Any thread may call; reads are pread, so a file truncated meanwhile is an error and not a crash.
class InputFile {
 public:
  static StatusOr<std::unique_ptr<InputFile>> Open(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // Fills `out` with the `size` bytes from `offset`; fewer in the file is DATA_LOSS.
  Status Read(int64_t offset, int64_t size, void* out) const;
  // Lets the system fetch these bytes from the disk, to be read soon. Returns at once.
  void ReadAhead(int64_t offset, int64_t size) const;

 private:
  InputFile(std::string path, int fd, int64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_;
  int64_t size_;
};

// The whole file, which must have at most `limit` bytes.
StatusOr<std::string> ReadFile(const std::string& path, int64_t limit);

}  // namespace mslua
