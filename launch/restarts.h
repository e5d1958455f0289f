// What those who start jobs again have in common.
#pragma once

#include "absl/time/time.h"
#include "launch/image_keeper.h"
#include "rendezvous/restart_policy.h"

namespace mslua {

// The turn that rank 0 has committed last, and in which image: to see whether a job makes progress.
JobTurn NewestTurnOf(ImageKeeper& images);
// Whether a signal that this process has blocked asks it to stop.
bool StopIsPending();
// Waits, but not when a signal that this process has blocked asks it to stop.
void PauseUnlessAsked(absl::Duration pause);

}  // namespace mslua
