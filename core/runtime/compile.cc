// Executable::Compile: for the device that the options name.
#include <chrono>
#include <utility>

#include "core/passes/passes.h"
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
  if (options.device != nullptr) {
    ASSIGN_OR_RETURN(Graph optimized, RunPassesForDevice(graph, options));
    return MakeDeviceExecutable(std::move(optimized), store, options, start);
  }
  ASSIGN_OR_RETURN(Graph optimized, RunPasses(graph, options));
  return MakeCpuExecutable(std::move(optimized), store, options, workspace, start);
}

DeviceRun* DeviceRunOf(Executable* executable) { return dynamic_cast<DeviceRun*>(executable); }
const DeviceRun* DeviceRunOf(const Executable* executable) { return dynamic_cast<const DeviceRun*>(executable); }

}  // namespace mslua
