#include "core/base/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/base/round_up.h"

namespace mslua {

AlignedMemory AllocateAligned(int64_t bytes) {
  constexpr int64_t kLine = 64, kPage = 4096, kHugePage = 2 << 20;
  const int64_t unit = bytes >= kHugePage ? kHugePage : bytes >= kPage ? kPage : kLine;
  const auto size = static_cast<size_t>(RoundUp(std::max<int64_t>(bytes, 1), unit));
  AlignedMemory memory(static_cast<char*>(std::aligned_alloc(static_cast<size_t>(unit), size)));
  // A wish: without it ordinary pages do.
  if (memory != nullptr && unit == kHugePage) madvise(memory.get(), size, MADV_HUGEPAGE);
  return memory;
}

}  // namespace mslua
