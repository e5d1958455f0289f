// Runs of bytes at equal steps, over Highway: a call of memcpy for each would cost more than the bytes.
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/rows_highway.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// n bytes, at least a vector's: whole vectors from the front, then the last one, which may overlap them.
template <size_t kBytes>
HWY_INLINE void CopyVectors(const uint8_t* from, uint8_t* to, int64_t n) {
  const hn::CappedTag<uint8_t, kBytes> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + step < n; i += step) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  hn::StoreU(hn::LoadU(d, from + n - step), d, to + n - step);
}

void CopyRuns(const uint8_t* from, int64_t from_step, uint8_t* to, int64_t to_step, int64_t bytes, int64_t runs) {
  constexpr int64_t kCall = 2048;  // from here on memcpy is as fast
  const auto each = [&](const auto& copy) {
    for (int64_t r = 0; r < runs; ++r) copy(from + r * from_step, to + r * to_step);
  };
  const auto fixed = [&](auto size) { each([](const uint8_t* a, uint8_t* b) { std::memcpy(b, a, sizeof size); }); };
  if (bytes >= kCall) {
    each([&](const uint8_t* a, uint8_t* b) { std::memcpy(b, a, static_cast<size_t>(bytes)); });
  } else if (bytes >= 64) {
    each([&](const uint8_t* a, uint8_t* b) { CopyVectors<64>(a, b, bytes); });
  } else if (bytes >= 16) {
    each([&](const uint8_t* a, uint8_t* b) { CopyVectors<16>(a, b, bytes); });
  } else if (bytes == 8) {
    fixed(uint64_t{});
  } else if (bytes == 4) {
    fixed(uint32_t{});
  } else if (bytes == 2) {
    fixed(uint16_t{});
  } else {
    each([&](const uint8_t* a, uint8_t* b) {
      for (int64_t i = 0; i < bytes; ++i) b[i] = a[i];
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(CopyRuns);

// `runs` runs of `bytes` bytes; the steps from one to the next are in bytes.
void HighwayCopyRuns(const void* from, int64_t from_step, void* to, int64_t to_step, int64_t bytes, int64_t runs) {
  HWY_DYNAMIC_DISPATCH(CopyRuns)
  (static_cast<const uint8_t*>(from), from_step, static_cast<uint8_t*>(to), to_step, bytes, runs);
}

}  // namespace mslua
#endif  // HWY_ONCE
