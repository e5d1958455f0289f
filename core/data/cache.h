// Samples that are kept after they were read once: in memory, or in a folder that later trainings use again.
#pragma once

#include <memory>
#include <string>

#include "core/data/part.h"

namespace mslua::data {

// Each sample is made once, when it is read first, and kept in memory. ResourceExhausted: the first sample times their
// number exceeds 90 % of the machine's memory.
StatusOr<std::unique_ptr<Reader>> OpenMemoryCache(std::unique_ptr<Part> part);

// The folder has `index` and `samples`. Several threads and processes may use it at once. `identity` says what the
// samples are made of; a folder with samples of another one is an error.
StatusOr<std::unique_ptr<Reader>> OpenFolderCache(std::unique_ptr<Part> part, const std::string& folder,
                                                  const std::string& identity);

}  // namespace mslua::data
