// A safetensors file made in memory at the pace of the compute threads, to be written when they have continued.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/aligned_memory.h"
#include "core/base/status.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/unfinished_save.h"

namespace mslua::checkpoint {

using ReadTensor = std::function<Status(size_t i, void* to)>;

class FileImage {
 public:
  // From now on the memory is such that another process can finish the save.
  void Share() { shares_ = true; }
  // After Make(), of shared memory: it is of the checkpoint at `path` with this manifest. Gives its descriptor, which
  // stays this object's.
  StatusOr<int> Complete(const std::string& path, const std::string& manifest);

  // Lays out, copies and hashes `tensors`, chunk by chunk on the compute threads; gives the part of a checkpoint's
  // manifest that describes them, in one file as rank 0 writes it. Memory of an earlier image is used again when it is
  // large enough. Without memory: RESOURCE_EXHAUSTED.
  StatusOr<Manifest> Make(const std::vector<TensorData>& tensors);
  // The same of values elsewhere: `read` copies those of tensors[i], which has no data, to an address.
  StatusOr<Manifest> Make(const std::vector<TensorData>& tensors, const ReadTensor& read);
  // Writes the file to `folder` and forces it to disk.
  Status Write(const std::string& folder) const;

 private:
  Status Reserve(int64_t bytes);
  Manifest PartOf(const std::vector<TensorData>& tensors, int64_t size, FileDigester* digester);

  char* data() const { return shared_ != nullptr ? shared_->data() : memory_.get(); }

  bool shares_ = false;
  AlignedMemory memory_;                // null where the memory is shared_
  std::unique_ptr<SaveMemory> shared_;  // null: it is not shared
  int64_t capacity_ = 0;                // bytes of either
  int64_t size_ = 0;                    // of the file
  std::string name_;
};

}  // namespace mslua::checkpoint
