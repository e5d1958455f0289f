// Sources in memory, for tests and benchmarks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/data/source.h"

namespace mslua::data {

// Sample i has row i of each array, one column an array.
inline Source NumpySlices(std::vector<NamedArray> arrays) {
  return Source("numpy_slices", {{"data", std::move(arrays)}});
}

// The generator's samples, a column for each name.
inline Source GeneratorSource(std::shared_ptr<Generator> generator, std::vector<std::string> column_names) {
  return Source("generator", {{"source", std::move(generator)}, {"column_names", std::move(column_names)}});
}

}  // namespace mslua::data
