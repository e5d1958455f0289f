// `mslua doctor --calibrate`: the cost constants of this machine, measured once and used by strategy search and plan.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Where they are kept: cluster.json in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache), in mslua.
std::string MeasuredClusterFile();

// Measures arithmetic, memory and messages between two ranks of this machine (a second or two) and writes the file that
// ParseCluster reads. Prints what it found.
Status Calibrate();

}  // namespace mslua
