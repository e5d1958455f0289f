// What ranks that train one network agree on between steps. Each call is made by all ranks of the world.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/base/shape.h"
#include "core/graph/graph.h"

namespace mslua {

class Groups;

// The largest of the ranks' values.
StatusOr<int32_t> LargestOfRanks(Groups& groups, int32_t mine, absl::string_view what);
// The same of several values, in place.
Status LargestOfRanks(Groups& groups, absl::Span<int32_t> values, absl::string_view what);
// The sums over ranks, in rank order.
Status SumOverRanks(Groups& groups, absl::Span<double> values, absl::string_view what);
// Rank 0's number on every rank.
Status ShareNumber(Groups& groups, double* number, absl::string_view what);
// Rank 0's text on every rank.
Status ShareText(Groups& groups, std::string* text, absl::string_view what);
// What `find` gives on rank 0, on every rank; its error too, as "rank 0: ...". `groups` may be null: this rank is
// alone.
StatusOr<std::string> TextOfFirstRank(Groups* groups, const std::function<StatusOr<std::string>()>& find,
                                      absl::string_view what);
// Rank 0's values on every rank.
Status ShareTensors(Groups& groups, absl::Span<const TensorView> tensors, absl::string_view what);
// Every rank's text, in rank order.
StatusOr<std::vector<std::string>> GatherTexts(Groups& groups, const std::string& text, absl::string_view what);
// Compares texts that are to be the same on all ranks, but for what follows "  # " in a line. FailedPrecondition: the
// first rank that differs from rank 0, and the first line, of each as it is.
Status CompareTexts(Groups& groups, const std::string& text, absl::string_view what);
// An error naming the ranks whose program has other collectives, or the same in another order, than rank 0's: they
// would wait for one another in the first step.
Status CompareSchedules(Groups& groups, const Graph& graph);

}  // namespace mslua
