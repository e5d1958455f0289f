#include <utility>

#include "core/schedule/declare/decay.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(inverse_decay_lr) {
  DecayOptions options;
  options.formula = "learning_rate / (1 + decay_rate * e / decay_epoch)";
  options.rate_doc = "what a decay adds to the divisor";
  options.factor = [](double rate, double decays, double) { return 1 / (1 + rate * decays); };
  return DecaySchedule("inverse_decay_lr", std::move(options));
}

}  // namespace mslua
