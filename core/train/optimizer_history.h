// What an optimizer has done so far: it belongs to the optimizer, so that a second training with it continues.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mslua {

struct OptimizerHistory {
  int64_t steps = 0;    // the place in its learning rate's schedule
  int64_t updates = 0;  // those of the steps that a loss scale did not skip: what Adam's correction counts
  // What ReduceLROnPlateau has multiplied the rates by, and its min_lr.
  double rate_scale = 1, least_rate = 0;
  // Averages of the parameters: their decay, and the updates that they have.
  double ema = 0;
  int64_t averaged = 0;

  // What a schedule's rate is reduced to: not below least_rate, but for a rate that is below it itself.
  double Reduced(double rate) const { return std::max(rate * rate_scale, std::min(rate, least_rate)); }
  // Counts steps, of which `made` are updates; `decay`: of the parameters' averages, 0: they have none.
  void Count(int64_t more, int64_t made, double decay) {
    steps += more;
    updates += made;
    if (decay == 0 || made == 0) return;
    averaged += made;
    ema = decay;
  }
};

}  // namespace mslua
