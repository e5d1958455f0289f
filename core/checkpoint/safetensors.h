// The safetensors format: an 8-byte little-endian length, a JSON header of that length, then the tensors' bytes,
// dense and row-major, without gaps. Files written here are opened by any reader, and any file is read here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/aligned_memory.h"
#include "core/base/atomic_file.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/base/tree_hash.h"

namespace mslua::checkpoint {

// A tensor in memory to be written: dense, row-major, not owned.
struct TensorData {
  std::string name;
  TensorType type;
  const void* data = nullptr;
};

// A tensor in a file.
struct StoredTensor {
  std::string name;
  TensorType type;
  int64_t begin = 0;  // its first byte, counted from the start of the file
};

// Tensors in memory as they will be stored.
std::vector<StoredTensor> StoredOf(const std::vector<TensorData>& tensors);
// Where the bytes of each of `stored` are, which are `tensors` in any order.
std::vector<const char*> DataOf(const std::vector<TensorData>& tensors, const std::vector<StoredTensor>& stored);

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;            // in the order of their bytes
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

inline constexpr int64_t kMaxSafetensorsHeader = 100000000;  // bytes, the format's own limit

// Parses the start of a file of `file_size` bytes: at least its length field and the header. Everything is checked
// against `file_size`: DATA_LOSS says what is wrong, UNIMPLEMENTED names a tensor of a dtype that mslua has not.
StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view start, int64_t file_size);
// The length of the header that the first 8 bytes announce, checked against the limit and `file_size`.
StatusOr<int64_t> ParseSafetensorsHeaderLength(absl::string_view start, int64_t file_size);

// Where the bytes of a file lie.
struct SafetensorsLayout {
  std::string start;                  // length and header
  std::vector<StoredTensor> tensors;  // in the order of their bytes
  int64_t size = 0;                   // of the file
};
// Wide elements first, so that each tensor is aligned to its elements; then by name. Names must be distinct, UTF-8 and
// not "__metadata__".
StatusOr<SafetensorsLayout> LayOutSafetensors(std::vector<StoredTensor> tensors,
                                              const std::map<std::string, std::string>& metadata);

// What identifies a file's bytes, and finds damage in them.
struct FileDigest {
  int64_t size = 0;
  std::string blake2b_tree;      // of the whole file (core/base/tree_hash.h)
  std::vector<uint32_t> crc32c;  // of each chunk of kChunkBytes, the last one shorter
};
inline constexpr int64_t kChunkBytes = 1 << 20;

// Makes the FileDigest of a file of `size` bytes from its chunks: each once, in any order, by several threads if need
// be.
class FileDigester {
 public:
  explicit FileDigester(int64_t size, bool blake2b_tree = true);  // false: leaves blake2b_tree empty
  int64_t chunks() const { return static_cast<int64_t>(digest_.crc32c.size()); }
  int64_t SizeOfChunk(int64_t chunk) const { return std::min(kChunkBytes, digest_.size - chunk * kChunkBytes); }
  void Hash(int64_t chunk, const void* data);
  FileDigest Finish();

 private:
  FileDigest digest_;
  absl::optional<Blake2bTree> tree_;
};

// Writes one file, whose tensors are known beforehand, in one pass: each chunk is hashed while in cache, and goes to
// the disk from there.
class SafetensorsWriter {
 public:
  // Writes the header.
  static StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path, std::vector<StoredTensor> tensors,
                                                             const std::map<std::string, std::string>& metadata);
  // The tensors in the order in which their bytes must be given.
  const std::vector<StoredTensor>& tensors() const { return layout_.tensors; }
  Status Write(const void* data, int64_t size);
  // Forces the file to disk and puts it in its place (core/base/atomic_file.h).
  StatusOr<FileDigest> Commit();

 private:
  explicit SafetensorsWriter(SafetensorsLayout layout) : layout_(std::move(layout)), digester_(layout_.size) {}
  Status WriteChunk();

  SafetensorsLayout layout_;
  std::unique_ptr<AtomicFile> file_;
  FileDigester digester_;
  AlignedMemory chunk_;  // kChunkBytes
  int64_t written_ = 0;  // of the file, what is in chunk_ included
};

// Writes a whole file of tensors, which stay where they are, by a SafetensorsWriter: on an error `path` is as it was.
StatusOr<FileDigest> WriteSafetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                      const std::map<std::string, std::string>& metadata = {});

}  // namespace mslua::checkpoint
