#include "core/train/agreement.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/rng.h"
#include "core/runtime/collective_kernel.h"

namespace mslua {
namespace {

Status RunOn(Groups& groups, Call call, absl::string_view what) {
  return groups.world().Run(call.At(what).Within(groups.timeout()));
}

}  // namespace

StatusOr<int32_t> LargestOfRanks(Groups& groups, int32_t mine, absl::string_view what) {
  int32_t largest = mine;
  RETURN_IF_ERROR(RunOn(groups, Call::AllReduce(ReduceOp::kMax, DType::kI32, &mine, &largest, 1), what));
  return largest;
}

Status SumOverRanks(Groups& groups, absl::Span<double> values, absl::string_view what) {
  return RunOn(
      groups,
      Call::AllReduce(ReduceOp::kSum, DType::kF64, values.data(), values.data(), static_cast<int64_t>(values.size())),
      what);
}

Status ShareText(Groups& groups, std::string* text, absl::string_view what) {
  auto size = static_cast<int64_t>(text->size());
  RETURN_IF_ERROR(RunOn(groups, Call::Broadcast(DType::kI64, &size, 1, 0), what));
  text->resize(static_cast<size_t>(size));
  return RunOn(groups, Call::Broadcast(DType::kU8, &(*text)[0], size, 0), what);
}

Status ShareTensors(Groups& groups, absl::Span<const TensorView> tensors, absl::string_view what) {
  for (const TensorView& t : tensors)
    RETURN_IF_ERROR(RunOn(groups, Call::Broadcast(t.type.dtype, t.data, t.type.elements(), 0), what));
  return absl::OkStatus();
}

namespace {

// Every rank's number, in rank order.
StatusOr<std::vector<int64_t>> Numbers(Groups& groups, int64_t mine, absl::string_view what) {
  std::vector<int64_t> all(static_cast<size_t>(groups.size()));
  RETURN_IF_ERROR(RunOn(groups, Call::AllGather(DType::kI64, &mine, all.data(), 1), what));
  return all;
}

}  // namespace

StatusOr<std::vector<std::string>> GatherTexts(Groups& groups, const std::string& text, absl::string_view what) {
  ASSIGN_OR_RETURN(const auto sizes, Numbers(groups, static_cast<int64_t>(text.size()), what));
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  std::string mine = text, all(static_cast<size_t>(largest * groups.size()), '\0');
  mine.resize(static_cast<size_t>(largest));
  RETURN_IF_ERROR(RunOn(groups, Call::AllGather(DType::kU8, mine.data(), &all[0], largest), what));
  std::vector<std::string> texts;
  for (size_t r = 0; r < sizes.size(); ++r)
    texts.push_back(all.substr(r * static_cast<size_t>(largest), static_cast<size_t>(sizes[r])));
  return texts;
}

Status CompareSchedules(Groups& groups, const Graph& graph) {
  std::string schedule;
  for (const Node& n : graph.nodes) {
    if (!IsCollective(n)) continue;
    absl::StrAppend(&schedule, n.op->name);
    for (const TensorType& t : n.outputs) absl::StrAppend(&schedule, " ", ToString(t));
    for (const auto& a : n.attrs.items()) absl::StrAppend(&schedule, " ", a.first, "=", AttrText(a.second));
    absl::StrAppend(&schedule, "\n");
  }
  ASSIGN_OR_RETURN(const auto all,
                   Numbers(groups, static_cast<int64_t>(StreamOf(schedule)), "the programs' collectives"));
  std::vector<size_t> others;
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] != all[0]) others.push_back(r);
  }
  if (others.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the training step of rank ", absl::StrJoin(others, ", "),
                   " has other collectives than rank 0's: all ranks must build one network and one optimizer"));
}

}  // namespace mslua
