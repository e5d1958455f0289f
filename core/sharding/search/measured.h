// What `mslua doctor --calibrate` has measured on this machine.
#pragma once

#include "absl/types/optional.h"

namespace mslua {

// Floating point operations a second of one thread; none: nothing was measured here.
absl::optional<double> MeasuredFlops();

}  // namespace mslua
