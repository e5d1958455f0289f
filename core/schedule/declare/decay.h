// Schedules that decay without an end: what exponential_decay_lr, natural_exp_decay_lr and inverse_decay_lr share.
#pragma once

#include <functional>
#include <string>

#include "core/schedule/declare/schedule.h"

namespace mslua {

struct DecayOptions {
  std::string formula, rate_doc;  // for help: the rate at epoch e, and what decay_rate is
  std::string decay_epoch_doc = "epochs of a decay by decay_rate";
  // What the first rate is multiplied by after so many decays of decay_epoch epochs.
  std::function<double(double rate, double decays, double decay_epoch)> factor;
};

// The schedule learning_rate * factor(decay_rate, e / decay_epoch, decay_epoch) at epoch e; the last of total_step
// steps stays. Its fields are learning_rate, decay_rate, those of ScheduleDef::Steps(), decay_epoch = 1 and is_stair =
// false, which rounds e / decay_epoch down.
ScheduleDef DecaySchedule(std::string function, DecayOptions options);

}  // namespace mslua
