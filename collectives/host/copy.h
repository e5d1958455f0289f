// Copies that memory, not the processor, bounds.
#pragma once

#include <cstdint>

namespace mslua {

// Results from this size on leave the caches anyway: written past them, they cost no reading of what is overwritten.
constexpr int64_t kStreamBytes = 8 << 20;
void CopyPastCache(char* to, const char* from, int64_t bytes);

// Moves `middle` to `to` and `from` to `middle`, line by line: the reads of both overlap.
void Exchange(char* middle, const char* from, char* to, int64_t bytes);

}  // namespace mslua
