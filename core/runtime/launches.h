// What an executable launches and where its workspace goes: the interface that the profile uses.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/runtime/executable.h"

namespace mslua {

// Times the launches of every following Run. `timeline` gets LaunchesOf().size() + 2 readings of the steady clock in
// nanoseconds, before the first launch, after each, and after the copies at the end. Null: no more.
void SetTimeline(Executable* executable, std::vector<int64_t>* timeline);
// The node and the kernel's name of every launch.
const std::vector<std::pair<int32_t, const char*>>& LaunchesOf(const Executable& executable);
// Node, output (-1: its kernel's scratch memory), offset, bytes, first and last node of the pieces of the workspace.
using ArenaEntry = std::array<int64_t, 6>;
const std::vector<ArenaEntry>& ArenaOf(const Executable& executable);

}  // namespace mslua
