#include "core/checkpoint/async_saver.h"

#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"

namespace mslua::checkpoint {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kCopyGrain = 1 << 20;  // bytes that are worth a thread

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

AsyncSaver::~AsyncSaver() { Join(); }

Status AsyncSaver::Start(const std::string& path, const RunState& run, const std::vector<TensorData>& tensors,
                         int files, std::function<Status()> then) {
  Join();
  int64_t bytes = 0;
  for (const TensorData& tensor : tensors) bytes += Aligned(tensor.type.bytes());
  if (capacity_ < bytes) {
    buffer_.reset();  // before the new one, so that both need not fit
    buffer_.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
    capacity_ = buffer_ != nullptr ? bytes : 0;
    if (buffer_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory for the ", bytes, " bytes that async_save copies; set async_save = false"));
    }
  }
  std::vector<TensorData> copies = tensors;
  int64_t offset = 0;
  for (TensorData& tensor : copies) {
    const char* from = static_cast<const char*>(tensor.data);
    char* to = buffer_.get() + offset;
    ParallelFor(tensor.type.bytes(), kCopyGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
    tensor.data = to;
    offset += Aligned(tensor.type.bytes());
  }
  StartTask(path, [path, run, copies = std::move(copies), files, then = std::move(then)]() -> Status {
    RETURN_IF_ERROR(SaveCheckpoint(path, run, copies, files));
    return then ? then() : absl::OkStatus();
  });
  return absl::OkStatus();
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
