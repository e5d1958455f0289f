// What an optimizer has done so far: it belongs to the optimizer, so that a second training with it continues.
#pragma once

#include <cstdint>

namespace mslua {

struct OptimizerHistory {
  int64_t steps = 0;    // the place in its learning rate's schedule
  int64_t updates = 0;  // those of the steps that a loss scale did not skip: what Adam's correction counts
};

}  // namespace mslua
