// `mslua data make`: stand-ins for the public datasets, in their true file formats. Deterministic (seed) and
// learnable: a small network that trains on the training part does well on the test part.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace mslua::data {

struct MakeOptions {
  int64_t train = 10000, test = 2000;  // samples; text: characters of train and test together
  uint64_t seed = 1;
};

// Into the folder `path`, which is made; a file that is there already is never replaced, that is an error.
// Each file appears whole or not at all.

// data_batch_1.bin ... data_batch_5.bin, test_batch.bin, batches.meta.txt. A class is a direction of stripes
// and a colour, under random phase, contrast and noise.
Status MakeCifar10(const std::string& path, const MakeOptions& options);
// The four IDX files, .gz. Digits of straight strokes, moved, slanted and noisy.
Status MakeMnist(const std::string& path, const MakeOptions& options);
// input.txt: speeches of a small grammar, options.train + options.test characters.
Status MakeText(const std::string& path, const MakeOptions& options);

}  // namespace mslua::data
