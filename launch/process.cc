#include "launch/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"

namespace mslua {
namespace {

// Without memory of its own: there may be none.
void Write(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

[[noreturn]] void End(const char* cause, const char* hint, ExitCode code) {
  Write("mslua: error: ");
  Write(cause);
  Write(hint);
  Write("\n");
  _exit(code);
}

constexpr char kMemoryHint[] = " (ulimit -v, or the limit of the control group)";
constexpr char kThreadHint[] = ": cannot start a thread (ulimit -u, ulimit -v, or the limit of the control group)";

[[noreturn]] void OnTerminate() {
  if (std::current_exception() == nullptr) {
    // What was thrown is not known where another exception of its cause ended the process on the way.
    if (std::uncaught_exceptions() > 0) End("no memory or no thread", kMemoryHint, kExitEnvironment);
    End("terminated without an exception", "; this is a bug of mslua", kExitInternal);
  }
  try {
    throw;
  } catch (const std::bad_alloc&) {
    End("out of memory", kMemoryHint, kExitEnvironment);
  } catch (const std::system_error& error) {
    End(error.what(), kThreadHint, kExitEnvironment);
  } catch (const std::exception& error) {
    End(error.what(), "; this is a bug of mslua", kExitInternal);
  } catch (...) {
    End("unknown exception", "; this is a bug of mslua", kExitInternal);
  }
}

}  // namespace

void SetUpProcess() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest number that is free is this one.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(kExitEnvironment);
  }
  std::signal(SIGXFSZ, SIG_IGN);
  // Where a parent has it ignored, the system reaps this process's children, and nobody learns how they ended.
  std::signal(SIGCHLD, SIG_DFL);
  std::set_terminate(OnTerminate);
}

Status StatusOfException() {
  try {
    throw;
  } catch (const std::bad_alloc& error) {
    const std::string size = error.what() == std::string("std::bad_alloc") ? "" : absl::StrCat(": ", error.what());
    return absl::ResourceExhaustedError(absl::StrCat("out of memory", size, kMemoryHint));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat(error.what(), kThreadHint));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(error.what(), "; this is a bug of mslua"));
  }
}

}  // namespace mslua
