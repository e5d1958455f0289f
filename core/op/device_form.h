// How an operator runs on an accelerator: CUDA C++ text, made for the types and attributes of one node.
//
// A program is a list of steps that run one after the other; a step is one kernel and the number of blocks it is
// launched with. The statements of a kernel see
//
//   x0, x1, ..  the inputs, and y0, y1, .. the outputs: pointers to their elements (core/op/device_text.h)
//   scratch     memory of the node alone, `scratch_bytes` long, contents undefined before the first step
//   fault       where a step that finds a wrong value says so (DeviceFault)
//
// and what the prelude of device_text.h defines. The same text is compiled by NVRTC for a device and by g++ for the
// emulated device of the tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/op/kernel.h"

namespace mslua {

struct DeviceStep {
  std::string text;
  int64_t blocks = 1;
  int threads = 256;  // of a block: 1 to 256
};

struct DeviceProgram {
  std::vector<DeviceStep> steps;
  int64_t scratch_bytes = 0;
};

// A wrong value, such as a label out of range; `set` is 0 where there is none.
struct DeviceFault {
  int64_t set = 0;
  int64_t at = 0;     // its place in the operand, from 0
  int64_t value = 0;  // of an integer operand
};

using DeviceFn = std::function<StatusOr<DeviceProgram>(const OpSpec&)>;
// The error that the reference kernel gives for that value.
using DeviceFaultFn = std::function<Status(const OpSpec&, const DeviceFault&)>;

}  // namespace mslua
