#include <cmath>

#include "core/schedule/declare/decay.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(exponential_decay_lr) {
  return DecaySchedule("exponential_decay_lr", "learning_rate * decay_rate^(e / decay_epoch)", "the factor of a decay",
                       [](double rate, double decays) { return std::pow(rate, decays); });
}

}  // namespace mslua
