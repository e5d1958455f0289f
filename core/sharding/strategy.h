// A user's strategy: ((2,4),(4,1)) says in how many parts each dimension of each input is sharded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/builder.h"
#include "core/sharding/sharding.h"

namespace mslua {

// Parts of each dimension of each input; kAnyParts where a strategy does not say.
using Strategy = std::vector<std::vector<int64_t>>;
inline constexpr int64_t kAnyParts = -1;

// "((2,4),(4,1))"; "((2),())" for a vector and a scalar.
std::string ToString(const Strategy& strategy);
StatusOr<Strategy> ParseStrategy(absl::string_view text);

// The parts of each factor of a node of that strategy. What is wrong is said with operator, input, dimension (from 1)
// and factor:
//   "MatMul: strategy ((3,4),(4,1)): dimension 1 of a (f32[16,32], factor 'i') is sharded 3 ways, which does not divide
//   16"
StatusOr<std::vector<int64_t>> FactorParts(const Mesh& mesh, const Graph& graph, const Node& node, const NodeRule& rule,
                                           const Strategy& strategy);

// Whether a tensor of that type can be sharded in so many parts a dimension. What is wrong begins with `what`:
//   "dataset_strategy: dimension 1 of column 'x' (f32[24,16]) is sharded 5 ways, which does not divide 24 (...)"
Status CheckParts(const Mesh& mesh, absl::string_view what, absl::string_view tensor, const TensorType& type,
                  absl::Span<const int64_t> parts);

// Leaves of a strategy what the sizes of these tensors allow: an evaluation may have smaller batches than the training
// that the strategy was written for.
void FitTo(const Graph& graph, absl::Span<const Value> values, Strategy* strategy);

// x as a node of its own, a view, that has a user's strategy.
Value ShardAs(GraphBuilder& g, Value x, const std::vector<int64_t>& parts);

// Gives the strategy of a call to the nodes that it became, [first, end of the graph): those that read `operands`, also
// through a broadcast. An error when the strategy has not an entry for each operand.
Status PinStrategy(Graph& graph, size_t first, absl::Span<const Value> operands, const Strategy& strategy,
                   absl::string_view called);

// Every assignment of mesh axes to factors with these parts; the first takes axes from the most significant, factor
// after factor. Axes beyond the product of the parts replicate. At most `limit`.
std::vector<Sharding> Assignments(const Mesh& mesh, absl::Span<const int64_t> parts, size_t limit = 256);

// What a sharding is as a strategy.
Strategy StrategyOf(const Mesh& mesh, const NodeRule& rule, const Sharding& sharding);

// "MatMul (Net/matmul @ recipe.lua:17)": how messages name a node.
std::string NameOf(const Node& node);

}  // namespace mslua
