// Takes rights away from a process before it runs Lua of people who must not have them.
#pragma once

#include "core/base/status.h"

namespace mslua {

struct SandboxOptions {
  int socket = -1;       // a connected socket for messages (send, recv); -1: none
  bool console = false;  // standard output and standard error
};

// From now on no thread of this process can open a file, start a process or thread, make or connect a socket, send
// signals or change its limits: such a system call returns EPERM (seccomp). What stays: memory, clocks, random numbers,
// exit, and what `options` names. It cannot be undone. Unavailable: this kernel cannot filter system calls.
Status EnterSandbox(const SandboxOptions& options);

}  // namespace mslua
