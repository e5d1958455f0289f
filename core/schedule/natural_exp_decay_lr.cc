#include <cmath>
#include <utility>

#include "core/schedule/declare/decay.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(natural_exp_decay_lr) {
  DecayOptions options;
  options.formula = "learning_rate * exp(-decay_rate * e)";
  options.rate_doc = "the exponent of an epoch";
  options.decay_epoch_doc = "with is_stair, e is a multiple of it";
  options.factor = [](double rate, double decays, double decay_epoch) {
    return std::exp(-rate * decays * decay_epoch);
  };
  return DecaySchedule("natural_exp_decay_lr", std::move(options));
}

}  // namespace mslua
