// Makes a test run on the emulated device.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua::testing {

// Puts the emulated libraries under the names of NVIDIA's into a folder and names it in MSLUA_CUDA_LIBRARIES: before
// anything opens them. Kept kernels go to the test's own folder.
Status UseEmulatedDevice();

}  // namespace mslua::testing
