// Parameters and running statistics: named values of a rank's store (rank_state.h), and how their first values are
// made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/base/part.h"
#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "core/graph/graph.h"
#include "core/train/optimizer_history.h"

namespace mslua {

// How the first value is made: MindSpore's initializers, their names and defaults.
struct Initializer {
  std::string kind = "zeros";
  double sigma = 0.01, mean = 0, scale = 0.07, gain = 1, negative_slope = 0, a = -2, b = 2, value = 0;
  std::string mode = "fan_in", nonlinearity = "leaky_relu";
  Tensor constant;  // kind "tensor"
  // Kind "read": fills the part at `begin` of a value of type `whole`.
  std::function<Status(const TensorType& whole, absl::Span<const int64_t> begin, const TensorView& part)> read;
};

struct ParameterData {
  std::string name;  // the path from the root that is trained; what checkpoints call it
  std::string key;   // in the store and in graphs: the name that it has on first use, made unique
  std::string kind;  // kParameter or kState of core/graph
  TensorType type;
  Initializer init;
  bool requires_grad = true, layerwise_parallel = false, parallel_optimizer = true;
  bool saved = true;  // checkpoints hold its value
  int64_t comm_fusion = 1;
  // Of an optimizer's state of which ranks have slices: this rank's, of the parameter's elements; what `type` has
  // behind them is padding. Without dimensions: the whole.
  Part slice;
  bool replica = false;  // a lower rank has the same slice
  // Of an optimizer's state: the key of its parameter, what of it ("moments"), and whose.
  std::string state_of, state_kind;
  std::shared_ptr<const OptimizerHistory> state_for;
  // The user's line that made it; of an optimizer's state, its parameter's. Null or without a file: not known.
  std::shared_ptr<const Location> made_at;
  // A training step replaces it by assign: running statistics. Ranks that train on batches of their own then have
  // values of their own.
  bool assigned = false;
  // CRC-32C of the whole value that this rank was given, by a recipe or a file, until ranks have compared theirs. No
  // value: an initializer makes it, alike on all ranks.
  absl::optional<uint32_t> given;
  // A row of the first dimension that is zero in the first value, whatever `init` gives; published weights keep their
  // own. -1: none.
  int64_t zero_row = -1;

  // Whether data parallel ranks may have different values of what they do not train: a state, or what is assigned.
  // Not of an optimizer's state.
  bool MayVary() const { return !layerwise_parallel && state_of.empty() && (kind == kState || assigned); }
};

// The names of initializers.
const std::vector<std::string>& InitializerNames();
// The name of an initializer as the code has it, of one of MindSpore's spellings: "he_normal" of "HeNormal", "zeros" of
// "Zero". Another name comes back as it is.
std::string InitializerNamed(const std::string& name);
// What is wrong with the name of an initializer, in this library's spelling or MindSpore's; empty: nothing.
std::string InitializerProblem(const std::string& name);
// Fills dense memory with the part at `begin` of a value of type `whole`. `stream` is the name that random values
// belong to: a part has the numbers that the whole has there.
Status Fill(const Initializer& init, uint64_t seed, const std::string& stream, const TensorType& whole,
            absl::Span<const int64_t> begin, const TensorView& part);
// The same of all of it.
Status Fill(const Initializer& init, uint64_t seed, const std::string& stream, const TensorView& out);

}  // namespace mslua
