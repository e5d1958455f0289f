// `mslua doctor --calibrate`: the cost constants of this machine, measured once and used by strategy search and plan.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Measures arithmetic, memory and messages between two ranks of this machine (a second or two) and writes
// MeasuredClusterFile(). Prints what it found.
Status Calibrate();

}  // namespace mslua
