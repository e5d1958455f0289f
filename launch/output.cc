#include "launch/output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

constexpr size_t kFull = 1 << 20;  // bytes
constexpr int kPollMilliseconds = 200;

Status Lost(absl::string_view why) {
  return WithExitCode(absl::DataLossError(absl::StrCat("standard output: ", why,
                                                       ": a part of what was printed is lost; free space there, or "
                                                       "print to another place, and run the command again")),
                      kExitStorage);
}

}  // namespace

Status LossOfOutput(int error) {
  if (error == 0 || error == EPIPE) return absl::OkStatus();
  return Lost(std::strerror(error));
}

Status FlushStandardOutput() {
  if (std::fflush(stdout) != 0) return LossOfOutput(errno);
  return std::ferror(stdout) == 0 ? absl::OkStatus() : Lost("a write failed");  // earlier, and its errno is gone
}

struct Output::State {
  State(int to, int wake_fd) : fd(to), wake(wake_fd) {}
  void Run();

  const int fd, wake;
  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting;   // to be written
  size_t writing = 0;    // bytes that the thread has taken and not written yet
  bool closed = false;   // the Output is gone
  bool failed = false;   // nobody reads any more
  int error = 0;         // errno of the write that failed
  bool awaited = false;  // the caller waits for space
};

void Output::State::Run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return closed || !waiting.empty(); });
    if (closed) return;
    std::string text;
    text.swap(waiting);
    for (size_t done = 0; done < text.size() && !failed && !closed;) {
      writing = text.size() - done;
      lock.unlock();
      const ssize_t n = write(fd, text.data() + done, text.size() - done);
      int write_error = n < 0 && errno != EINTR ? errno : 0;
      if (write_error == EAGAIN) {  // another program has set O_NONBLOCK
        pollfd space = {fd, POLLOUT, 0};
        poll(&space, 1, kPollMilliseconds);
        write_error = 0;
      }
      lock.lock();
      failed = write_error != 0;
      error = write_error;
      if (n > 0) done += n;
    }
    writing = 0;
    if (failed) waiting.clear();
    changed.notify_all();
    if (closed) return;
    const uint64_t one = 1;
    if (awaited && ::write(wake, &one, sizeof one) < 0) continue;  // full: it is set
    awaited = false;
  }
}

Output::Output(int fd, int wake) : state_(std::make_shared<State>(fd, wake)) {
  std::thread([state = state_] { state->Run(); }).detach();
}

Output::~Output() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void Output::Write(absl::string_view text) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->failed) return;
  state_->waiting.append(text.data(), text.size());
  state_->changed.notify_all();
}

bool Output::Full() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const bool full = state_->waiting.size() + state_->writing > kFull;
  state_->awaited |= full;
  return full;
}

int Output::error() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->error;
}

bool Output::Flush(absl::Duration limit) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return state_->changed.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] {
    return state_->failed || (state_->waiting.empty() && state_->writing == 0);
  });
}

}  // namespace mslua
