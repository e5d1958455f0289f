#include "core/kernels/select/kernel_verdicts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/folder.h"
#include "core/base/parallel_for.h"
#include "core/base/spawn.h"
#include "core/kernels/onednn/onednn_version.h"
#include "core/kernels/select/bilinear_check.h"
#include "oneapi/dnnl/dnnl.h"

namespace mslua {
namespace {

constexpr int kCheckVersion = 2;    // of the checks: another one asks again
constexpr int kLongestCheck = 120;  // seconds; a kernel that takes longer does not pass
constexpr int kIdle = 2;            // seconds without a request after which the checking process ends
constexpr int64_t kMostFileBytes = 4 << 20;

// What a verdict depends on besides the kernel.
std::string Environment() {
  unsigned a = 0, b = 0, c = 0, d = 0;
#if defined(__x86_64__)
  __get_cpuid(1, &a, &b, &c, &d);
#endif
  return absl::StrCat("v", kCheckVersion, " ", onednn::Version(), " isa ", absl::Hex(dnnl_get_effective_cpu_isa()),
                      " processor ", absl::Hex(a), ":");
}

std::string KeyOf(const Bilinear& b, Way way) {
  static constexpr const char* kNames[] = {"tiles", "onednn", "onednn in f32"};
  return absl::StrCat(kNames[static_cast<int>(way)], " threads ", ComputeThreads(), " ", ToString(b));
}

// `keep`: whether another check would find the same.
struct Outcome {
  bool passes, keep;
};

constexpr Outcome kUncheckedPasses = {true, false};

Outcome CheckHere(const Bilinear& b, Way way) {
  const auto kernel = MakeUnguarded(b, way);
  if (!kernel.ok()) return {false, false};
  const Verdict verdict = CheckKernel(b, **kernel);
  return {verdict != Verdict::kWrong, verdict != Verdict::kUnchecked};
}

// Both ends are the same program.
struct Request {
  Bilinear bilinear;
  Way way;
  int threads;
};
static_assert(std::is_trivially_copyable_v<Request>, "sent as its bytes");

// The process that checks. One at a time; a new one when it has ended.
class Checker {
 public:
  // Checks in this process where no other can be started.
  Outcome Check(const Bilinear& b, Way way) {
    const Request request{b, way, ComputeThreads()};
    for (int tries = 0; tries < 2; ++tries) {
      if (socket_ < 0 && !Start()) return CheckHere(b, way);
      if (send(socket_, &request, sizeof request, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof request)) {
        pollfd ready = {socket_, POLLIN, 0};
        int n;
        while ((n = poll(&ready, 1, kLongestCheck * 1000)) < 0 && errno == EINTR) {
        }
        Outcome outcome;
        if (n > 0 && recv(socket_, &outcome, sizeof outcome, 0) == static_cast<ssize_t>(sizeof outcome)) return outcome;
        if (n <= 0) {
          kill(child_->pid, SIGKILL);
          End();
          return {false, false};
        }
      }
      // It ended: because it had been idle, or in this check.
      const int status = End();
      const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      if (signal == SIGABRT) return {false, false};
      for (const int crash : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP}) {
        if (signal == crash) return {false, true};
      }
    }
    // It cannot run here: no memory, no thread.
    return kUncheckedPasses;
  }

  // Ends the process, if there is one; how it ended.
  int End() {
    if (socket_ < 0) return 0;
    close(socket_);
    socket_ = -1;
    std::unique_lock<std::mutex> lock(child_->mutex);
    child_->changed.wait(lock, [&] { return child_->ended; });
    return child_->status;
  }

 private:
  struct Child {
    pid_t pid = -1;
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
    int status = 0;
  };

  bool Start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    for (int fd = 1; fd < 3; ++fd) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    char program[] = "mslua", argument[sizeof kCheckKernelsArgument];
    std::memcpy(argument, kCheckKernelsArgument, sizeof argument);
    char* const arguments[] = {program, argument, nullptr};
    child_ = std::make_shared<Child>();
    const int error =
        posix_spawn(&child_->pid, "/proc/self/exe", &actions, SpawnAttributes().get(), arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error != 0) {
      close(ends[0]);
      return false;
    }
    socket_ = ends[0];
    // It leaves no dead process behind, whenever it ends.
    std::thread([child = child_] {
      int status = 0;
      while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
      }
      const std::lock_guard<std::mutex> lock(child->mutex);
      child->status = status;
      child->ended = true;
      child->changed.notify_all();
    }).detach();
    return true;
  }

  int socket_ = -1;
  std::shared_ptr<Child> child_;
};

bool offers_checks = false;
bool keeps_verdicts = true;

class Verdicts {
 public:
  bool Passes(const Bilinear& b, Way way) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!read_) Read();
    const std::string key = KeyOf(b, way);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    const Outcome outcome = offers_checks ? checker_.Check(b, way) : CheckHere(b, way);
    known_[key] = outcome.passes;
    if (outcome.keep) Write(VerdictLine(environment_, key, outcome.passes));
    return outcome.passes;
  }

  void EndCheckProcess() {
    const std::lock_guard<std::mutex> lock(mutex_);
    checker_.End();
  }

 private:
  std::string FileName() const {
    const std::string folder = keeps_verdicts ? UserCacheFolder() : "";
    return folder.empty() ? "" : absl::StrCat(folder, "/kernel_verdicts");
  }

  void Read() {
    read_ = true;
    environment_ = Environment();
    const std::string name = FileName();
    const int fd = name.empty() ? -1 : open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    std::string text;
    char buffer[1 << 16];
    ssize_t n;
    while (static_cast<int64_t>(text.size()) < kMostFileBytes && (n = read(fd, buffer, sizeof buffer)) > 0)
      text.append(buffer, static_cast<size_t>(n));
    file_bytes_ = static_cast<int64_t>(text.size());
    close(fd);
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      absl::string_view key;
      bool passes;
      if (ParseVerdictLine(line, environment_, &key, &passes)) known_[std::string(key)] = passes;
    }
  }

  // Several processes may write at once: each line is one write at the file's end.
  void Write(const std::string& line) {
    const std::string name = FileName();
    if (name.empty() || file_bytes_ > kMostFileBytes || !MakeFolders(UserCacheFolder()).ok()) return;
    const int fd = open(name.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    if (write(fd, line.data(), line.size()) > 0) file_bytes_ += static_cast<int64_t>(line.size());
    close(fd);
  }

  std::mutex mutex_;
  bool read_ = false;
  std::string environment_;
  int64_t file_bytes_ = 0;
  std::map<std::string, bool> known_;
  Checker checker_;
};

Verdicts& AllVerdicts() {
  // Never destroyed: kernels are made until the end.
  static auto* const verdicts = new Verdicts;
  return *verdicts;
}

constexpr absl::string_view kPasses = " passes.", kFails = " fails.";

[[noreturn]] void AnswerRequests() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  for (;;) {
    pollfd ready = {0, POLLIN, 0};
    if (poll(&ready, 1, kIdle * 1000) <= 0) _exit(0);
    Request request;
    if (recv(0, &request, sizeof request, 0) != static_cast<ssize_t>(sizeof request)) _exit(0);
    alarm(kLongestCheck + 10);
    SetComputeThreads(request.threads);
    const Outcome outcome = CheckHere(request.bilinear, request.way);
    if (send(0, &outcome, sizeof outcome, MSG_NOSIGNAL) < 0) _exit(0);
    alarm(0);
  }
}

}  // namespace

std::string VerdictLine(absl::string_view environment, absl::string_view key, bool passes) {
  return absl::StrCat(environment, key, passes ? kPasses : kFails, "\n");
}

bool ParseVerdictLine(absl::string_view line, absl::string_view environment, absl::string_view* key, bool* passes) {
  if (!absl::ConsumePrefix(&line, environment)) return false;
  *passes = absl::EndsWith(line, kPasses);
  if (!absl::ConsumeSuffix(&line, *passes ? kPasses : kFails)) return false;
  *key = line;
  return true;
}

bool PassesCheck(const Bilinear& b, Way way) { return AllVerdicts().Passes(b, way); }

void EndCheckProcess() { AllVerdicts().EndCheckProcess(); }

void OfferKernelChecks(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], kCheckKernelsArgument) == 0) AnswerRequests();
  offers_checks = true;
}

void ForgetVerdicts() { keeps_verdicts = false; }

}  // namespace mslua
