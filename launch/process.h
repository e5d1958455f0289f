// What a process of mslua sets up before anything else, and how it ends where the system gives it no memory or threads.
#pragma once

#include "core/base/status.h"

namespace mslua {

// To be called first in main, by every process:
//   - opens /dev/null in the place of a standard input or output that is closed, so that no file gets its number;
//   - ignores SIGXFSZ, so that a write beyond `ulimit -f` is an error (EFBIG);
//   - has an exception that nobody catches, on any thread, end the process with one line that says the cause, and with
//     exit code 4 where memory or a thread cannot be had, else 70.
void SetUpProcess();

// Inside a catch block: the exception as an error. RESOURCE_EXHAUSTED: memory or a thread cannot be had; else INTERNAL.
Status StatusOfException();

}  // namespace mslua
