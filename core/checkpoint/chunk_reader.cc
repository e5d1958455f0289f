#include "core/checkpoint/chunk_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/aligned_memory.h"
#include "core/checkpoint/safetensors.h"

namespace mslua::checkpoint {
namespace {

// A second opening of a file, for direct reads; after the first that fails there are none.
class DirectFile {
 public:
  explicit DirectFile(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)) {}
  ~DirectFile() { Close(); }
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Fills a whole chunk of memory, or what the file has of it: `bytes`. False: it could not.
  bool Read(int64_t offset, int64_t bytes, char* chunk) {
    if (fd_ >= 0 && pread(fd_, chunk, kChunkBytes, offset) != bytes) Close();
    return fd_ >= 0;
  }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd_;
};

}  // namespace

Status ForEachChunkOnDisk(const InputFile& file, const std::function<void(const char*, int64_t)>& each) {
  const AlignedMemory chunk = AllocateAligned(kChunkBytes);
  if (chunk == nullptr) return absl::ResourceExhaustedError("no memory for a chunk of a file");
  DirectFile direct(file.path());
  for (int64_t offset = 0; offset < file.size(); offset += kChunkBytes) {
    const int64_t n = std::min(kChunkBytes, file.size() - offset);
    if (!direct.Read(offset, n, chunk.get())) RETURN_IF_ERROR(file.Read(offset, n, chunk.get()));
    each(chunk.get(), n);
  }
  return absl::OkStatus();
}

}  // namespace mslua::checkpoint
