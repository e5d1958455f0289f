#include "core/data/sample_code.h"

#include <condition_variable>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/parallel_for.h"

namespace mslua::data {

StatusOr<SampleFunction*> CodeCalls::Function(const std::shared_ptr<const SampleCode>& code) {
  std::unique_ptr<SampleFunction>& function = functions_[code.get()];
  if (function == nullptr) {
    ASSIGN_OR_RETURN(function, code->Start());
  }
  return function.get();
}

Status CodeCalls::Call(const std::shared_ptr<const SampleCode>& code, CodeArguments arguments, const std::string& where,
                       std::vector<TensorView>* results) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = code;
    since_ = std::chrono::steady_clock::now();
    arguments_ = arguments;
    where_ = where;
  }
  const auto call = [&]() -> Status {
    ASSIGN_OR_RETURN(SampleFunction * function, Function(code));
    return function->Call(arguments, results);
  };
  const Status status = call();
  const std::lock_guard<std::mutex> lock(mutex_);
  running_ = nullptr;
  if (status.ok()) return status;
  Status at(status.code(), absl::StrCat(status.message(), " (", where, ")"));
  status.ForEachPayload([&](absl::string_view name, const absl::Cord& value) { at.SetPayload(name, value); });
  return at;
}

Status CodeCalls::Overdue() const {
  std::shared_ptr<const SampleCode> code;
  CodeArguments arguments;
  std::string where;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (running_ == nullptr) return absl::OkStatus();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
    if (seconds < running_->limit_seconds()) return absl::OkStatus();
    code = running_;
    arguments = arguments_;
    where = where_;
  }
  // The thread that runs the call is in it for good: its arguments stay where they are.
  return WithExitCode(
      absl::DeadlineExceededError(absl::StrCat(code->Locate(arguments), ": the function has not returned after ",
                                               code->limit_seconds(), " s (", where, ")")),
      kExitUsage);
}

Status CodeCalls::RunWatched(std::function<Status(CodeCalls* calls)> body) {
  struct Shared {
    CodeCalls calls;
    std::function<Status(CodeCalls* calls)> body;
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
    Status status;
  };
  auto shared = std::make_shared<Shared>();
  shared->body = std::move(body);
  std::thread thread([shared] {
    SetComputeThreads(1);
    Status status;
    try {
      status = shared->body(&shared->calls);
    } catch (const std::bad_alloc&) {  // an exception that leaves a thread ends the process
      status = absl::ResourceExhaustedError("out of memory for a sample");
    }
    const std::lock_guard<std::mutex> lock(shared->mutex);
    shared->status = std::move(status);
    shared->ended = true;
    shared->changed.notify_one();
  });
  std::unique_lock<std::mutex> lock(shared->mutex);
  while (!shared->changed.wait_for(lock, std::chrono::milliseconds(200), [&] { return shared->ended; })) {
    const Status overdue = shared->calls.Overdue();
    if (overdue.ok()) continue;
    thread.detach();
    return overdue;
  }
  lock.unlock();
  thread.join();
  return shared->status;
}

}  // namespace mslua::data
