// A save that another process can finish: the file and the manifest of a checkpoint, and where it goes, in memory that
// a descriptor names and that outlives the process that began to save.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/manifest.h"

namespace mslua::checkpoint {

// The memory of a process that saves.
class SaveMemory {
 public:
  // For files of up to so many bytes. RESOURCE_EXHAUSTED: there is none.
  static StatusOr<std::unique_ptr<SaveMemory>> Make(int64_t bytes);
  ~SaveMemory();
  SaveMemory(const SaveMemory&) = delete;
  SaveMemory& operator=(const SaveMemory&) = delete;

  // Where the file lies; it begins at a page.
  char* data() const;
  int descriptor() const { return descriptor_; }
  // Before the file is written: there is nothing to finish.
  void Clear();
  // The first `size` bytes are the only file of the checkpoint at `path` with this manifest.
  Status Complete(const std::string& path, const std::string& manifest, int64_t size);

 private:
  SaveMemory(int descriptor, char* memory, int64_t bytes) : descriptor_(descriptor), memory_(memory), bytes_(bytes) {}
  const int descriptor_;
  char* const memory_;   // a page that says what is there, then the file
  const int64_t bytes_;  // of the file at most
};

// What is found there afterwards.
class UnfinishedSave {
 public:
  // NOT_FOUND: there is nothing to finish. DATA_LOSS: it is damaged. The descriptor stays the caller's.
  static StatusOr<std::unique_ptr<UnfinishedSave>> Open(int descriptor);
  ~UnfinishedSave();
  UnfinishedSave(const UnfinishedSave&) = delete;
  UnfinishedSave& operator=(const UnfinishedSave&) = delete;

  const std::string& path() const { return path_; }
  const RunState& run() const { return manifest_.run; }
  // Writes the checkpoint, with `companions` beside it, and verifies it. DATA_LOSS: the memory is not what was saved.
  Status Finish(const Companions& companions) const;

 private:
  UnfinishedSave(char* memory, int64_t bytes) : memory_(memory), bytes_(bytes) {}
  Status Read();
  Status CheckFile() const;

  char* const memory_;
  const int64_t bytes_;
  std::string path_, manifest_text_;
  Manifest manifest_;
};

// Writes `<folder>/<name>` from memory that begins at a page, and forces it to disk.
Status WriteFileOf(const char* data, int64_t size, const std::string& folder, const std::string& name);

}  // namespace mslua::checkpoint
