// Makes a test run on the emulated device, and asks the emulation for what no device would do.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua::testing {

// MSLUA_TEST_DEVICE=real: the test runs on this machine's device, as tools/gpu_check has it.
bool OnRealDevice();

// Unless OnRealDevice(), puts the emulated libraries under the names of NVIDIA's into a folder and names it in
// MSLUA_CUDA_LIBRARIES: before anything opens them. Kept kernels go to the test's own folder.
Status UseEmulatedDevice();

// The emulation's own functions (tests/emulated_device/emulated_cuda.cc).
struct Emulation {
  void (*fail)(const char* name, int call);
  bool (*failed)();
  void (*order)(const char* order, unsigned seed);
  int (*held)();
  void (*forget)();
};
StatusOr<Emulation> FindEmulation();

}  // namespace mslua::testing
