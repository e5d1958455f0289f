// Catches reads and writes of tensor memory outside steps. With MSLUA_GUARD_MEMORY=1 (bazel test --config=guarded) the
// memory of parameters, state and activations cannot be accessed while no step runs. Store::Read, Store::Write and
// Executable::Output give access to what they return until the next step; any other access ends the process by SIGSEGV.
// It shows on the CPU what a device would: its memory is not the host's.
#pragma once

#include <cstdint>

namespace mslua {

// Whether the environment asks for it. Read once.
bool GuardsMemory();

// Takes the access away from the pages that lie within the memory.
void CloseMemory(void* data, int64_t bytes);
// Gives it back for the pages that have a byte of the memory.
void OpenMemory(void* data, int64_t bytes);

}  // namespace mslua
