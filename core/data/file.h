// Files: reading at any offset, gzip, writing without ever leaving half a file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::data {

bool IsFile(const std::string& path);
bool IsFolder(const std::string& path);
// Names in a folder in byte order, without those that start with a dot.
StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// A regular file open for reading. Any thread may call.
class InputFile {
 public:
  static StatusOr<std::unique_ptr<InputFile>> Open(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // Fills n bytes from `offset`; fewer in the file is an error.
  Status Read(int64_t offset, int64_t n, void* out) const;

 private:
  InputFile(std::string path, int fd, int64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_;
  int64_t size_;
};

// The whole file, at most `limit` bytes, into `out` (its capacity is reused).
Status ReadFile(const std::string& path, int64_t limit, std::vector<uint8_t>* out);
// The same, inflated when it is gzip data; truncated or corrupt gzip data is an error naming the file.
Status ReadFileInflated(const std::string& path, int64_t limit, std::vector<uint8_t>* out);

// Writes through `write`, which calls its argument for each piece, into a file beside `path`, and renames
// it once all is on disk. On an error `path` is as it was.
using Sink = std::function<Status(absl::string_view piece)>;
Status WriteFile(const std::string& path, const std::function<Status(const Sink&)>& write);

}  // namespace mslua::data
