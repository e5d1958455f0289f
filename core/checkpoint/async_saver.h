// Saving beside training: the step stalls for a copy of the tensors and its digest, a thread writes it.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/file_image.h"

namespace mslua::checkpoint {

// All methods belong to one thread, the trainer's.
class AsyncSaver {
 public:
  AsyncSaver() = default;
  ~AsyncSaver();  // waits for a save under way
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Keeps the memory behind a descriptor beyond this process, which may end before a save is written; -1: keeps
  // nothing.
  using KeepMemory = std::function<Status(int descriptor)>;
  // From now on Start, with values, has its copy kept until it is written: UnfinishedSave reads it. Before the first
  // save.
  void KeepUnfinished(KeepMemory keep);

  // Copies and hashes `tensors` into memory that is kept for the next time (on the compute threads), and returns; the
  // thread then writes the checkpoint at `path` and, when that went well, does `then` (the keeper's Saved(), say).
  // A save still under way is waited for first, so that none is left out; to leave this one out instead, ask busy().
  // What an earlier save came to stays for Poll(). Without memory for the copy: RESOURCE_EXHAUSTED, nothing started.
  Status Start(const std::string& path, const RunState& run, const std::vector<TensorData>& tensors,
               std::function<Status()> then = nullptr, const Companions& companions = nullptr);
  // The same of values that the thread reads: `read` copies those of tensors[i], which has no data, to an address. What
  // fails then, memory too, is told by Poll().
  void Start(const std::string& path, const RunState& run, std::vector<TensorData> tensors, ReadTensor read,
             std::function<Status()> then, const Companions& companions = nullptr);
  // Waits for a save under way; then the thread does `save`, of a checkpoint at `path`.
  void StartTask(const std::string& path, std::function<Status()> save);
  bool busy() const;
  // To be called at step boundaries: the errors of saves that have ended since the last call, each once, with the path;
  // OK if there are none. Training continues in both cases.
  Status Poll();
  // Waits for a save under way; then as Poll().
  Status Wait();

 private:
  void Join();
  Status WriteImage(const std::string& path, const std::string& manifest, const Companions& companions) const;

  std::thread thread_;
  FileImage image_;           // read by the thread while it runs
  KeepMemory keep_;           // null: an unfinished save is lost with its process
  mutable std::mutex mutex_;  // guards what follows
  bool running_ = false;
  Status error_;
};

}  // namespace mslua::checkpoint
