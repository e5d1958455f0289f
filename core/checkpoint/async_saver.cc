#include "core/checkpoint/async_saver.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua::checkpoint {

AsyncSaver::~AsyncSaver() { Join(); }

Status AsyncSaver::Start(const std::string& path, const RunState& run, const std::vector<TensorData>& tensors,
                         std::function<Status()> then, const Companions& companions) {
  Join();
  ASSIGN_OR_RETURN(Manifest part, image_.Make(tensors));
  StartTask(path, [this, path, run, part = std::move(part), then = std::move(then), companions]() -> Status {
    RETURN_IF_ERROR(WriteImage(path, run, part, companions));
    return then ? then() : absl::OkStatus();
  });
  return absl::OkStatus();
}

void AsyncSaver::Start(const std::string& path, const RunState& run, std::vector<TensorData> tensors, ReadTensor read,
                       std::function<Status()> then, const Companions& companions) {
  StartTask(path,
            [this, path, run, tensors = std::move(tensors), read = std::move(read), then = std::move(then),
             companions]() -> Status {
              ASSIGN_OR_RETURN(const Manifest part, image_.Make(tensors, read));
              RETURN_IF_ERROR(WriteImage(path, run, part, companions));
              return then ? then() : absl::OkStatus();
            });
}

Status AsyncSaver::WriteImage(const std::string& path, const RunState& run, const Manifest& part,
                              const Companions& companions) const {
  ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Create(path, companions));
  RETURN_IF_ERROR(image_.Write(writer->folder()));
  return writer->Commit(run, {part});
}

void AsyncSaver::StartTask(const std::string& path, std::function<Status()> save) {
  Join();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = true;
  }
  thread_ = std::thread([this, path, save = std::move(save)] {
    const Status status = save();
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
