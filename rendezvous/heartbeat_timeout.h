// How long a process of a job may be silent.
#pragma once

#include "absl/time/time.h"

namespace mslua {

// How long another process may give no sign of life before it counts as stopped, or the link to it as broken.
// Heartbeats come five times as often. A process of this host that runs, or would if it had a core, gets twelve times
// as long.
inline constexpr absl::Duration kHeartbeatTimeout = absl::Milliseconds(2500);

}  // namespace mslua
