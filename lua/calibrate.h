// `mslua doctor --calibrate`: the cost constants of this machine, measured once and used by strategy search and plan.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Measures arithmetic, memory and messages between two ranks of this machine (a second or two) and writes
// MeasuredClusterFile(). Prints what it found.
Status Calibrate();

// The same of this machine's first CUDA device: products by type, memory, launches and copies to the host, which
// collectives between ranks are counted with. Writes MeasuredDeviceFile().
Status CalibrateDevice();

}  // namespace mslua
