// What an executable on a device does beside Executable.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "core/base/status.h"

namespace mslua {

class Device;
class Executable;

// What the kernels of a launch take of a device's multiprocessor, the most of them; 0 where that is not known.
struct KernelUse {
  int kernels = 0;
  int registers = 0, shared_bytes = 0, spilled_bytes = 0;
};

class DeviceRun {
 public:
  virtual ~DeviceRun() = default;

  // Run in two halves: the device computes beside the host. Start takes the inputs and the scalars, which may change as
  // soon as it returns, and Finish waits for the oldest step that has been started: Output is that step's. StepsAhead()
  // steps may be started and not finished; the store is looked at where there are none.
  virtual Status Start() = 0;
  virtual Status Finish() = 0;
  virtual int StepsAhead() const = 0;

  virtual Device* device() const = 0;
  // All that the step and the store's tensors take of its memory.
  virtual int64_t device_bytes() const = 0;
  // Of launches()[launch]: what its kernels take, and the nodes that it computes.
  virtual KernelUse UseOf(size_t launch) const = 0;
  virtual absl::Span<const int32_t> NodesOf(size_t launch) const = 0;
};

// Of an executable; null: it runs on the CPU.
DeviceRun* DeviceRunOf(Executable* executable);
const DeviceRun* DeviceRunOf(const Executable* executable);

}  // namespace mslua
