// First values of parameters that files hold: a rank reads the part that it keeps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/checkpoint/checkpoint.h"

namespace mslua {

// A parameter as tensors of files: they follow one another along its first dimension, each with as many rows; one
// alone may be transposed.
struct StoredValue {
  struct Piece {
    std::shared_ptr<checkpoint::Checkpoint> from;
    std::string name;
  };
  std::vector<Piece> pieces;
  bool transposed = false;
};

// Reads the part at `begin` of a parameter of type `whole`, converted to its element type. Of the files no other bytes
// are read, but for their headers. INVALID_ARGUMENT where the tensors' shapes are not those of the parameter.
Status ReadStored(const StoredValue& value, const TensorType& whole, absl::Span<const int64_t> begin,
                  const TensorView& part);

}  // namespace mslua
