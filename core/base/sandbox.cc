#include "core/base/sandbox.h"

#include <errno.h>
#include <seccomp.h>
#include <time.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// What needs no file, no other process and no network. The list is short on purpose: a call that is missing fails with
// EPERM, which allocators, libgomp and oneDNN take as "not available here".
constexpr int kAllowed[] = {
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(time),
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getrusage),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_yield),
    SCMP_SYS(restart_syscall),
};

}  // namespace

Status EnterSandbox(const SandboxOptions& options) {
  // localtime reads the time zone's file the first time.
  tzset();
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)), &seccomp_release);
  if (filter == nullptr) return absl::UnavailableError("seccomp_init failed");
  // A filter for all threads, and an error where the kernel cannot do that.
  int error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  for (const int call : kAllowed) {
    if (error == 0) error = seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0);
  }
  const auto allow_on = [&](int call, int descriptor) {
    if (error == 0)
      error = seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 1, SCMP_A0(SCMP_CMP_EQ, uint64_t(descriptor)));
  };
  if (options.console) {
    for (const int descriptor : {1, 2}) {
      allow_on(SCMP_SYS(write), descriptor);
      allow_on(SCMP_SYS(writev), descriptor);
    }
  }
  if (options.socket >= 0) {
    allow_on(SCMP_SYS(recvfrom), options.socket);
    // To the peer, which has no address.
    if (error == 0) {
      error = seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, SCMP_SYS(sendto), 2,
                               SCMP_A0(SCMP_CMP_EQ, uint64_t(options.socket)), SCMP_A4(SCMP_CMP_EQ, 0));
    }
  }
  if (error == 0) error = seccomp_load(filter.get());
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("this kernel cannot filter system calls (seccomp), and without that such Lua is not run: ",
                   std::strerror(-error)));
}

}  // namespace mslua
