// A graph on an accelerator: its kernels compiled, its memory planned and captured as a whole.
#pragma once

#include <chrono>
#include <memory>

#include "core/runtime/executable.h"

namespace mslua {

// Prepares `graph`, which the passes have been through, for `options.device`. A node without a kernel there is an error
// that names it: nothing runs on the CPU in its place. Collectives of several ranks go through host memory.
// Executable::Compile began at `start`.
StatusOr<std::unique_ptr<Executable>> MakeDeviceExecutable(Graph graph, Store* store, const CompileOptions& options,
                                                           std::chrono::steady_clock::time_point start);

}  // namespace mslua
