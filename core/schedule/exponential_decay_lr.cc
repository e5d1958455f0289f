#include <cmath>
#include <utility>

#include "core/schedule/declare/decay.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(exponential_decay_lr) {
  DecayOptions options;
  options.formula = "learning_rate * decay_rate^(e / decay_epoch)";
  options.rate_doc = "the factor of a decay";
  options.factor = [](double rate, double decays, double) { return std::pow(rate, decays); };
  return DecaySchedule("exponential_decay_lr", std::move(options));
}

}  // namespace mslua
