// `mslua data ls` and `mslua data verify`: what a folder holds, and whether all of it can be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/data/reader.h"

namespace mslua::data {

struct PartReport {
  std::string name;  // "train", "test", "all"
  int64_t samples = 0;
  std::vector<Column> columns;
  // Verified only: how many samples each label has, of the last label column; empty without labels.
  std::vector<int64_t> histogram;
};

struct DataReport {
  std::string kind;  // of the source, "image_folder"
  std::vector<PartReport> parts;
  std::vector<std::string> notices;
  std::vector<std::string> problems;  // what training would fail on; the first few, a line each
  bool more_problems = false;
};

// Finds out which source `path` holds; the one of kind `wanted` is tried first, "" is none. With `verify` every sample
// is read and decoded. NOT_FOUND when it holds none; damage is not an error but a problem in the report.
StatusOr<DataReport> Inspect(const std::string& path, bool verify, const std::string& wanted = "");

// The kind as `mslua data ls` writes it, "image folder".
std::string FormatName(const std::string& kind);

}  // namespace mslua::data
