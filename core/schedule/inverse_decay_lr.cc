#include "core/schedule/declare/decay.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(inverse_decay_lr) {
  return DecaySchedule("inverse_decay_lr", "learning_rate / (1 + decay_rate * e / decay_epoch)",
                       "what a decay adds to the divisor",
                       [](double rate, double decays) { return 1 / (1 + rate * decays); });
}

}  // namespace mslua
