// Runs a call of an operator by a library's kernel.
#pragma once

#include <vector>

#include "core/device/device.h"
#include "core/kernels/cuda/library_kernel.h"
#include "core/ops/testing/op_checks.h"

namespace mslua::testing {

// The outputs of `call` on `inputs`, computed by `program`, which has a kernel.
StatusOr<std::vector<Memory>> RunLibraryProgram(Device* device, DeviceStream& stream, const Call& call,
                                                const std::vector<Memory>& inputs, const LibraryProgram& program);

}  // namespace mslua::testing
