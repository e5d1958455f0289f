// The one kind of pickle that CIFAR's python version uses: a dictionary with a u8 matrix and lists of
// integers. Reads nothing else and runs nothing: a pickle is a program, this is a reader of data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/status.h"

namespace mslua::data {

struct PickledImages {
  int64_t rows = 0;
  int64_t data_offset = 0;      // byte in the file where the u8[rows, columns] matrix "data" begins
  std::vector<int32_t> labels;  // [rows, keys]: element k of a row is from the list named keys[k]
};

// `bytes` is a whole file of pickle protocol 2 to 4. Errors say what was expected.
StatusOr<PickledImages> ReadPickledImages(absl::string_view bytes, int64_t columns, absl::Span<const std::string> keys);

}  // namespace mslua::data
