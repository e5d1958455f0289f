// Executable::Compile: for the device that the options name.
#include <chrono>
#include <utility>

#include "core/passes/run_passes.h"
#include "core/runtime/cpu_executable.h"
#include "core/runtime/device_executable.h"
#include "core/runtime/device_run.h"
#include "core/runtime/executable.h"

namespace mslua {

StatusOr<std::unique_ptr<Executable>> Executable::Compile(const Graph& graph, Store* store,
                                                          const CompileOptions& options,
                                                          std::shared_ptr<Block>* workspace) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(Graph optimized, RunPasses(graph, options));
  if (options.device != nullptr) return MakeDeviceExecutable(std::move(optimized), store, options, start);
  return MakeCpuExecutable(std::move(optimized), store, options, workspace, start);
}

DeviceRun* DeviceRunOf(Executable* executable) { return dynamic_cast<DeviceRun*>(executable); }
const DeviceRun* DeviceRunOf(const Executable* executable) { return dynamic_cast<const DeviceRun*>(executable); }

}  // namespace mslua
