// `mslua data make`: stand-ins for the public datasets, in their true file formats. Deterministic (seed) and learnable:
// a small network that trains on the training part does well on the test part. The file of a source makes its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/data/sample_draws.h"
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

// A sample has that many random numbers.
constexpr uint64_t kStandInNumbers = 4096;
// Those of a sample of a part, "make/mnist/train".
SampleDraws StandInDraws(uint64_t seed, absl::string_view part, int64_t sample);
// An integer of [0, n), n at most 2^24.
inline int StandInBelow(SampleDraws* draws, int n) { return static_cast<int>(draws->Uniform(0, n)); }
// n numbers of [0, 1), the sample's last.
inline void StandInNoise(const SampleDraws& draws, uint64_t n, float* out) { draws.Fill(kStandInNumbers - n, n, out); }

// The value as a pixel, at least 0 and at most 255.
uint8_t Pixel(double value);

}  // namespace mslua::data
