#include "tests/emulated_device/library_calls.h"

#include <utility>

#include "core/device/kernel_set.h"
#include "core/op/device_text.h"

namespace mslua::testing {

StatusOr<std::vector<Memory>> RunLibraryProgram(Device* device, DeviceStream& stream, const Call& call,
                                                const std::vector<Memory>& inputs, const LibraryProgram& program) {
  const OpSpec spec = {call.attrs, call.inputs, call.outputs};
  KernelSet kernels(device, DevicePrelude(), KernelSet::UserFolder());
  for (const auto* steps : {&program.before, &program.after}) {
    for (const DeviceStep& step : *steps) kernels.Add(DeviceBody(spec, step), DevicePointers(spec));
  }
  RETURN_IF_ERROR(kernels.Compile());
  std::vector<DeviceMemory> memory;
  std::vector<void*> pointers;
  const auto add = [&](int64_t bytes) -> Status {
    ASSIGN_OR_RETURN(DeviceMemory m, device->Allocate(bytes));
    pointers.push_back(m.data());
    memory.push_back(std::move(m));
    return absl::OkStatus();
  };
  for (const Memory& m : inputs) {
    RETURN_IF_ERROR(add(m.type().bytes()));
    RETURN_IF_ERROR(stream.CopyIn(pointers.back(), m.data(), m.type().bytes()));
  }
  for (const TensorType& t : call.outputs) RETURN_IF_ERROR(add(t.bytes()));
  RETURN_IF_ERROR(add(program.scratch_bytes));
  ASSIGN_OR_RETURN(const DeviceMemory workspace, device->Allocate(program.kernel->workspace_bytes()));
  const std::vector<void*> operands = pointers;
  pointers.push_back(nullptr);  // it finds no faults
  const auto launch = [&](const std::vector<DeviceStep>& steps) -> Status {
    for (const DeviceStep& step : steps) {
      const DeviceFunction function = kernels.function(kernels.Add(DeviceBody(spec, step), DevicePointers(spec)));
      RETURN_IF_ERROR(stream.Launch(function, step.blocks, step.threads, pointers));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(launch(program.before));
  RETURN_IF_ERROR(program.kernel->Enqueue(stream, operands, workspace.data()));
  RETURN_IF_ERROR(launch(program.after));
  std::vector<Memory> outputs;
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    outputs.emplace_back(call.outputs[o]);
    RETURN_IF_ERROR(stream.CopyOut(outputs[o].data(), operands[inputs.size() + o], call.outputs[o].bytes()));
  }
  RETURN_IF_ERROR(stream.Wait());
  return outputs;
}

}  // namespace mslua::testing
