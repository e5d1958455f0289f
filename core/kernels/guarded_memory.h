// Memory that shows what a kernel does wrong: all of it holds one byte, and bytes before and after it must stay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/base/aligned_memory.h"

namespace mslua {

class GuardedMemory {
 public:
  static constexpr uint8_t kNaN = 0xff;   // every byte of it: NaN in f32, bf16 and f16
  static constexpr uint8_t kHuge = 0x7f;  // 3.4e38 in f32 and bf16

  // Holds `pattern` everywhere; valid() is false where there is no memory.
  GuardedMemory(int64_t bytes, uint8_t pattern)
      : bytes_(bytes), pattern_(pattern), memory_(AllocateAligned(bytes + 2 * kMargin)) {
    if (valid()) std::memset(memory_.get(), pattern, static_cast<size_t>(bytes + 2 * kMargin));
  }

  bool valid() const { return memory_ != nullptr; }
  // 64-byte aligned.
  char* data() const { return memory_.get() + kMargin; }
  // Whether the bytes before and after are as they were.
  bool intact() const {
    const auto same = [&](const char* from) {
      return std::all_of(from, from + kMargin, [&](char b) { return static_cast<uint8_t>(b) == pattern_; });
    };
    return same(memory_.get()) && same(data() + bytes_);
  }

 private:
  static constexpr int64_t kMargin = 4096;
  int64_t bytes_;
  uint8_t pattern_;
  AlignedMemory memory_;
};

}  // namespace mslua
