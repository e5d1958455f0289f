// The native stack of another thread of this process.
#pragma once

#include <pthread.h>

#include <string>

#include "absl/time/time.h"

namespace mslua::endpoint {

// One function a line, innermost first, up to code that was compiled while the program runs; empty when the thread does
// not answer in time. One caller at a time.
std::string NativeStack(pthread_t thread, absl::Duration limit);

// Runs `f(argument, context)` in `thread` from a signal handler, with the handler's third argument: only what is
// async-signal-safe may happen there. False when it did not run in time. One caller at a time.
bool RunInSignalHandler(pthread_t thread, void (*f)(void*, const void*), void* argument, absl::Duration limit);

}  // namespace mslua::endpoint
