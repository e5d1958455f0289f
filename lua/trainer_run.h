// Runs a recipe's training (train/training.h) for a session: what the command line asks of it, how its graphs are
// compiled, the Lua that runs beside it.
#pragma once

#include <memory>
#include <string>

#include "lua/trainer_spec.h"

namespace mslua {

// Trains; gives the last epoch's mean loss.
StatusOr<double> RunTraining(TrainingSpec* spec, Session& session);
// Trains as long as measuring `steps` steps takes, prints the profile (as JSON, the steps alone) and writes the trace
// to a file, "" for none. Nothing is saved.
Status ProfileTraining(TrainingSpec* spec, Session& session, int64_t steps, bool steps_only, bool json,
                       const std::string& trace);

}  // namespace mslua
