// A graph on the CPU.
#pragma once

#include <chrono>
#include <memory>

#include "core/runtime/executable.h"

namespace mslua {

// Prepares `graph`, which the passes have been through; the rest as Executable::Compile, which began at `start`.
StatusOr<std::unique_ptr<Executable>> MakeCpuExecutable(Graph graph, Store* store, const CompileOptions& options,
                                                        std::shared_ptr<Block>* workspace,
                                                        std::chrono::steady_clock::time_point start);

}  // namespace mslua
