// Files of datasets: folders, and whole files into a buffer that is used again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua::data {

// Names in a folder in byte order, without those that start with a dot.
StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// The whole file, at most `limit` bytes, into `out` (its capacity is reused).
Status ReadFile(const std::string& path, int64_t limit, std::vector<uint8_t>* out);
// The same, inflated when it is gzip data; truncated or corrupt gzip data is an error naming the file.
Status ReadFileInflated(const std::string& path, int64_t limit, std::vector<uint8_t>* out);

}  // namespace mslua::data
