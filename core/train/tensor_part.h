// How a training's tensors lie in its checkpoints.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "core/base/part.h"

namespace mslua {

// How a tensor of the store lies in a checkpoint that ranks save together, where it is not the same on all of them.
struct TensorPart {
  bool own = false;      // each rank has a value of its own: kept as "rank_<r>/<name>", rank 0's under its name
  Part part;             // that this rank has; without dimensions: the whole
  bool flat = false;     // the part is a slice of the tensor's elements: what the store has behind them is padding
  bool replica = false;  // a lower rank has this part too, and writes it
  // Ranks may have values of their own, as running statistics of data parallel ranks are: rank 0's is kept under the
  // name, and another rank's as "rank_<r>/<name>" where it differs. A rank without one reads rank 0's.
  bool varies = false;

  bool sharded() const { return !part.whole.empty(); }
};
using TensorParts = absl::flat_hash_map<std::string, TensorPart>;

// The tensors of a store that belong to a training, and what checkpoints call them: a store may hold other networks.
using TensorNames = absl::flat_hash_map<std::string, std::string>;

// The name of a tensor in a checkpoint that all ranks saved: "rank_<r>/<name>" for what rank r > 0 has of its own.
std::string NameOfPart(const std::string& name, const TensorPart& part, int rank);
std::string NameOfRank(const std::string& name, int rank);
inline constexpr char kRankPrefix[] = "rank_";

}  // namespace mslua
