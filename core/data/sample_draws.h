// The random numbers of one sample.
#pragma once

#include <cstdint>

#include "core/base/rng.h"

namespace mslua::data {

// Numbers of a stream from number `first` on, one after another.
class SampleDraws {
 public:
  SampleDraws(uint64_t seed, uint64_t stream, uint64_t first) : seed_(seed), stream_(stream), first_(first) {}
  double Uniform(double low, double high) { return low + (high - low) * UniformAt(seed_, stream_, first_ + next_++); }
  // An integer of [0, n).
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(UniformIntAt(seed_, stream_, first_ + next_++, static_cast<uint64_t>(n)));
  }
  // n numbers of [0, 1) from number `skip` of this sample on; those that are drawn one by one stay the same.
  void Fill(uint64_t skip, uint64_t n, float* out) const { FillUniform(seed_, stream_, first_ + skip, n, out); }

 private:
  uint64_t seed_, stream_, first_, next_ = 0;
};

}  // namespace mslua::data
