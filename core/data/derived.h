// Sources that are made of other datasets: `zip` (sample i has the columns of sample i of each), `concat` (the samples
// of one behind those of the other) and `cache` (the samples are kept when they are read first). Their parts are
// neither shuffled nor batched, and give the same sample in every epoch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/dataset.h"

namespace mslua::data {

// Sample i has the columns of sample i of all parts.
Source ZipSource(std::vector<std::shared_ptr<const Dataset>> parts);
// The samples of the parts one after the other; their columns are alike.
Source ConcatSource(std::vector<std::shared_ptr<const Dataset>> parts);
// In memory, or in files of `folder` where it is not empty.
Source CacheSource(std::shared_ptr<const Dataset> part, const std::string& folder);

}  // namespace mslua::data
