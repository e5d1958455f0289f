// What clients of `mslua attach` talk to while a network is trained.
#pragma once

#include <memory>

#include "attach/server/endpoint.h"
#include "train/training_spec.h"

namespace mslua {

// Gives the view its connections to the other ranks, which `training` runs on too, and what it runs of user's code.
void ConnectRanks(const TrainingSpec& spec, const TrainingRank& rank, endpoint::TrainingView* view);

// Opens the endpoint on all ranks or on none: training does without, and says why nobody can attach. Null: there is
// none.
StatusOr<std::unique_ptr<endpoint::Endpoint>> OpenEndpoint(const TrainingSpec& spec, const TrainingRank& rank,
                                                           endpoint::TrainingView view);

}  // namespace mslua
