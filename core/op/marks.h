// Marks: attributes by which parts of the compiler tell each other of a node what its operator does not declare. This
// is the list of all of them, of what each means, who sets it and who reads it. In the IR text their names begin with
// `_`; a call with another name of that kind, or with a value of another type, is an error (CheckCall).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/op/attrs.h"

namespace mslua {

// A mark whose value is a T.
template <class T>
struct Mark {
  const char* name;

  bool Has(const Attrs& attrs) const { return attrs.Has(name); }
  // Null where there is none.
  const T* Find(const Attrs& attrs) const {
    const AttrValue* value = attrs.Find(name);
    return value == nullptr ? nullptr : std::get_if<T>(value);
  }
  // The value of one that is there.
  const T& Get(const Attrs& attrs) const { return std::get<T>(*attrs.Find(name)); }
  T GetOr(const Attrs& attrs, T fallback) const { return Has(attrs) ? Get(attrs) : std::move(fallback); }
  Attrs& Set(Attrs& attrs, T value) const { return attrs.Set(name, AttrValue(std::move(value))); }
  void Erase(Attrs& attrs) const { attrs.Erase(name); }
};

namespace mark {

// ---- Of a call, for its kernels ------------------------------------------------------------------------------------

// The stream of a random operator. GraphBuilder, when it adds the node; kernels of random operators.
inline constexpr Mark<int64_t> kRng{"_rng"};
// What part of the whole a random operator makes: its first element, and the whole's shape. Localize and
// PlaceRandomRows (core/step/aggregation.h); kernels of random operators.
inline constexpr Mark<std::vector<int64_t>> kBegin{"_begin"};
inline constexpr Mark<std::vector<int64_t>> kGlobal{"_global"};
// On a micro-batch of a column: its first dimension has rows, as that of the column has. The training step;
// PlaceRandomRows.
inline constexpr Mark<bool> kRowsFirst{"_rows_first"};
// Of operators that take rows by number, of their gradients and of one_hot: the first row, or class, that this device's
// part has; of all but one_hot also the rows of the whole. Localize; their kernels.
inline constexpr Mark<int64_t> kFirstRow{"_begin"};
inline constexpr Mark<int64_t> kRows{"_rows"};
// How many messages a message stands for. The pass of buckets; reports.
inline constexpr Mark<int64_t> kMembers{"_members"};

// ---- Collectives ---------------------------------------------------------------------------------------------------

// Which of the collectives of its group a node is, from 0, as the graph was before the passes: the same on all ranks
// of the group, whatever passes find equal in one rank's part. Of a message of several: of each. NumberCollectives;
// CompareSchedules.
inline constexpr Mark<std::vector<int64_t>> kCalls{"_calls"};
// The place of a collective among all of that graph's, by when it can begin. NumberCollectives; the pass of buckets.
inline constexpr Mark<int64_t> kBegins{"_begins"};

// ---- Forward and backward ------------------------------------------------------------------------------------------

// On a node of the backward pass: the forward node that it is the gradient of. Gradients(); sharding, micro-batches,
// pipeline stages. A graph that has one trains.
inline constexpr Mark<int64_t> kOrigin{"_origin"};
// On a sum of gradients of one value. Gradients() and the training step; sharding, stages.
inline constexpr Mark<bool> kSum{"_sum"};
// On a sum of a gradient over micro-batches. The training step; sharding of the optimizer's state.
inline constexpr Mark<bool> kMicroSum{"_micro"};
// The micro-batch that a node computes. MarkMicroBatches; sharding gives the same node of others its strategy.
inline constexpr Mark<int64_t> kMicroBatch{"_micro_batch"};
// On the node of a parameter's gradient, and in a part on the messages of its gradient and of its update: the
// parameter's name. The training step and Partition; GlobalView, which then removes it.
inline constexpr Mark<std::string> kGradientOf{"_gradient"};
// Which outputs are gradients that updates read (core/graph/gradient_marks.h has the form).
inline constexpr Mark<std::string> kUpdateGradients{"_update_gradients"};

// ---- Sharding ------------------------------------------------------------------------------------------------------

// The text of a user's strategy, "((2,4),(4,1))". Of a call, and of a node as it is taken over; Propagate, the search.
inline constexpr Mark<std::string> kUserStrategy{"_in_strategy"};
// The same of a call's results. The call gives its results views with a kUserStrategy.
inline constexpr Mark<std::string> kOutStrategy{"_out_strategy"};
// Of a call, from add_prim_attr: its reductions are of each rank's own part of the batch.
inline constexpr Mark<bool> kOwnBatch{"_cross_batch"};
// On such a reduction: a rank's result is that of its own part of the batch ("sum"), as a mean of it ("mean"). The
// call; Partition.
inline constexpr Mark<std::string> kCrossBatch{"_cross_batch"};
// For the reader of a dump: the strategy that the node got. Annotated().
inline constexpr Mark<std::string> kInStrategy{"in_strategy"};

// ---- Pipeline stages -----------------------------------------------------------------------------------------------

// On the nodes of a message to another stage: whether what travels is sharded along its first dimension over all
// devices, as BatchLayout does, or whole. Both ends of a message have it alike. StageProgram; Propagate.
inline constexpr Mark<bool> kBoundary{"_boundary"};
// The rank at the other end, the ranks at this place of all stages, and the message's number. StageProgram;
// PlaceMessages makes attributes of them.
inline constexpr Mark<int64_t> kPeer{"_peer"};
inline constexpr Mark<std::vector<int64_t>> kColumn{"_column"};
inline constexpr Mark<int64_t> kTag{"_tag"};

// ---- Printed as a mark, a field of Node ----------------------------------------------------------------------------

// Node::region.
inline constexpr Mark<int64_t> kRegion{"_region"};

}  // namespace mark

// What is wrong with an attribute that its operator does not declare: "unknown attribute '_x'", "attribute '_rng' is
// ...". Empty: it is a mark.
std::string MarkProblem(absl::string_view name, const AttrValue& value);

}  // namespace mslua
