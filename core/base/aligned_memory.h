// Memory that begins where its use asks for it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace mslua {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<char, FreeMemory>;

// At least `bytes` bytes, contents undefined; null: there is no memory. It begins at a cache line; from 4 KiB on at a
// page, so that it can go to and come from the disk as it lies; from 2 MiB on at a huge page, and asks for such.
AlignedMemory AllocateAligned(int64_t bytes);

}  // namespace mslua
