#include <cmath>

#include "core/schedule/declare/decay.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(natural_exp_decay_lr) {
  return DecaySchedule("natural_exp_decay_lr", "learning_rate * exp(-decay_rate * e / decay_epoch)",
                       "the exponent of a decay", [](double rate, double decays) { return std::exp(-rate * decays); });
}

}  // namespace mslua
