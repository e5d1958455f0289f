// `mslua data make`: stand-ins for the public datasets, in their true file formats. Deterministic (seed) and learnable:
// a small network that trains on the training part does well on the test part. The file of a source makes its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/data/source.h"

namespace mslua::data {

// Kinds of the sources that have a stand-in, sorted.
std::vector<std::string> StandIns();

// Writes the stand-in of a kind into the folder `path`, which is made; a file that is there already is never replaced,
// that is an error. Each file appears whole or not at all. INVALID_ARGUMENT: there is no such stand-in.
Status MakeStandIn(const std::string& kind, const std::string& path, const MakeOptions& options);

// ---- For the files of sources --------------------------------------------------------------------------------------

// Makes the folder; an error when one of `files` is in it or there are too few or too many samples.
Status PrepareStandIn(const std::string& path, const std::vector<std::string>& files, const MakeOptions& options);

// Random numbers of one sample: 4096 from a stream.
class SampleRandom {
 public:
  SampleRandom(uint64_t seed, absl::string_view part, int64_t sample)
      : seed_(seed), stream_(StreamOf({part.data(), part.size()})), base_(static_cast<uint64_t>(sample) * 4096) {}
  double Between(double low, double high) { return low + (high - low) * UniformAt(seed_, stream_, base_ + next_++); }
  int Below(int bound) { return static_cast<int>(Between(0, bound)); }
  // n numbers in [0, 1), the sample's last.
  void Noise(int64_t n, float* out) { FillUniform(seed_, stream_, base_ + 4096 - n, n, out); }

 private:
  uint64_t seed_, stream_, base_, next_ = 0;
};

// The value as a pixel, at least 0 and at most 255.
uint8_t Pixel(double value);

}  // namespace mslua::data
