// Schedules that decay without an end: what exponential_decay_lr, natural_exp_decay_lr and inverse_decay_lr share.
#pragma once

#include <functional>
#include <string>

#include "core/schedule/declare/schedule.h"

namespace mslua {

// The schedule learning_rate * factor(decay_rate, e / decay_epoch) at epoch e; the last of total_step steps stays. Its
// fields are learning_rate, decay_rate, those of ScheduleDef::Steps(), decay_epoch = 1 and is_stair = false, which
// rounds e / decay_epoch down. `formula` and `rate_doc` (of decay_rate) are for help.
ScheduleDef DecaySchedule(std::string function, const std::string& formula, std::string rate_doc,
                          std::function<double(double rate, double decays)> factor);

}  // namespace mslua
