#include "core/checkpoint/async_saver.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua::checkpoint {

AsyncSaver::~AsyncSaver() { Join(); }

Status AsyncSaver::Start(const std::string& path, const RunState& run, const std::vector<TensorData>& tensors,
                         std::function<Status()> then, const Companions& companions) {
  Join();
  ASSIGN_OR_RETURN(const Manifest part, image_.Make(tensors));
  ASSIGN_OR_RETURN(std::string manifest, JoinParts(run, {part}));
  bool kept = true;
  if (keep_) {
    ASSIGN_OR_RETURN(const int descriptor, image_.Complete(path, manifest));
    kept = keep_(descriptor).ok();
  }
  StartTask(path, [this, path, manifest = std::move(manifest), then = std::move(then), companions]() -> Status {
    Status saved = WriteImage(path, manifest, companions);
    if (saved.ok() && then) saved = then();
    if (keep_) keep_(-1).IgnoreError();  // nobody is there any more who would finish it
    return saved;
  });
  if (!kept) Join();
  return absl::OkStatus();
}

void AsyncSaver::KeepUnfinished(KeepMemory keep) {
  keep_ = std::move(keep);
  image_.Share();
}

void AsyncSaver::Start(const std::string& path, const RunState& run, std::vector<TensorData> tensors, ReadTensor read,
                       std::function<Status()> then, const Companions& companions) {
  StartTask(path,
            [this, path, run, tensors = std::move(tensors), read = std::move(read), then = std::move(then),
             companions]() -> Status {
              ASSIGN_OR_RETURN(const Manifest part, image_.Make(tensors, read));
              ASSIGN_OR_RETURN(const std::string manifest, JoinParts(run, {part}));
              RETURN_IF_ERROR(WriteImage(path, manifest, companions));
              return then ? then() : absl::OkStatus();
            });
}

Status AsyncSaver::WriteImage(const std::string& path, const std::string& manifest,
                              const Companions& companions) const {
  ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Create(path, companions));
  RETURN_IF_ERROR(image_.Write(writer->folder()));
  return writer->CommitManifest(manifest);
}

void AsyncSaver::StartTask(const std::string& path, std::function<Status()> save) {
  Join();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = true;
  }
  thread_ = std::thread([this, path, save = std::move(save)] {
    Status status;
    try {
      status = save();
    } catch (const std::bad_alloc&) {  // an exception that leaves a thread ends the process
      status = absl::ResourceExhaustedError("out of memory");
    }
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = false;
    if (status.ok()) return;
    const std::string before = error_.ok() ? "" : absl::StrCat(error_.message(), "; ");
    error_ = Status(status.code(), absl::StrCat(before, "checkpoint ", path, " was not saved: ", status.message()));
  });
}

bool AsyncSaver::busy() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return running_;
}

Status AsyncSaver::Poll() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(error_, absl::OkStatus());
}

Status AsyncSaver::Wait() {
  Join();
  return Poll();
}

void AsyncSaver::Join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace mslua::checkpoint
