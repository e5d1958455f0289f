#include "core/base/aligned_memory.h"

#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(AlignedMemory, BeginsWhereItsSizeAsksForIt) {
  const struct {
    int64_t bytes, unit;
  } cases[] = {{0, 64}, {1, 64}, {4095, 64}, {4096, 4096}, {1 << 20, 4096}, {2 << 20, 2 << 20}, {5000001, 2 << 20}};
  for (const auto& c : cases) {
    const AlignedMemory memory = AllocateAligned(c.bytes);
    ASSERT_NE(memory, nullptr) << c.bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % static_cast<uintptr_t>(c.unit), 0u) << c.bytes;
    std::memset(memory.get(), 1, static_cast<size_t>(c.bytes));
  }
}

TEST(AlignedMemory, NoneWhereThereIsNone) { EXPECT_EQ(AllocateAligned(int64_t{1} << 60), nullptr); }

}  // namespace
}  // namespace mslua
