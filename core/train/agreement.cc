#include "core/train/agreement.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collectives/communicator.h"
#include "collectives/groups.h"
#include "core/base/rng.h"
#include "core/graph/collective_node.h"
#include "core/op/marks.h"

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

Status LargestOfRanks(Groups& groups, absl::Span<int32_t> values, absl::string_view what) {
  return RunOn(
      groups,
      Call::AllReduce(ReduceOp::kMax, DType::kI32, values.data(), values.data(), static_cast<int64_t>(values.size())),
      what);
}

Status SumOverRanks(Groups& groups, absl::Span<double> values, absl::string_view what) {
  return RunOn(
      groups,
      Call::AllReduce(ReduceOp::kSum, DType::kF64, values.data(), values.data(), static_cast<int64_t>(values.size())),
      what);
}

Status ShareNumber(Groups& groups, double* number, absl::string_view what) {
  return RunOn(groups, Call::Broadcast(DType::kF64, number, 1, /*root=*/0), what);
}

Status ShareText(Groups& groups, std::string* text, absl::string_view what) {
  auto size = static_cast<int64_t>(text->size());
  RETURN_IF_ERROR(RunOn(groups, Call::Broadcast(DType::kI64, &size, 1, 0), what));
  text->resize(static_cast<size_t>(size));
  return RunOn(groups, Call::Broadcast(DType::kU8, &(*text)[0], size, 0), what);
}

StatusOr<std::string> TextOfFirstRank(Groups* groups, const std::function<StatusOr<std::string>()>& find,
                                      absl::string_view what) {
  if (groups == nullptr) return find();
  constexpr char kText = '=', kError = '!';
  StatusOr<std::string> found = std::string();
  if (groups->rank() == 0) found = find();
  std::string sent = found.ok() ? kText + *found : kError + std::string(found.status().message());
  RETURN_IF_ERROR(ShareText(*groups, &sent, what));
  if (groups->rank() == 0) return found;
  if (sent[0] == kError) return absl::InvalidArgumentError(absl::StrCat("rank 0: ", sent.substr(1)));
  return sent.substr(1);
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

namespace {

absl::string_view Bare(absl::string_view line) { return line.substr(0, line.find("  # ")); }

std::string BareText(absl::string_view text) {
  std::string bare;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) absl::StrAppend(&bare, Bare(line), "\n");
  return bare;
}

}  // namespace

Status CompareTexts(Groups& groups, const std::string& text, absl::string_view what) {
  ASSIGN_OR_RETURN(const auto hashes, Numbers(groups, static_cast<int64_t>(StreamOf(BareText(text))), what));
  const auto other = std::find_if(hashes.begin(), hashes.end(), [&](int64_t h) { return h != hashes[0]; });
  if (other == hashes.end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto texts, GatherTexts(groups, text, what));
  const std::vector<absl::string_view> first = absl::StrSplit(texts[0], '\n');
  const std::vector<absl::string_view> theirs =
      absl::StrSplit(texts[static_cast<size_t>(other - hashes.begin())], '\n');
  size_t line = 0;
  while (line < first.size() && line < theirs.size() && Bare(first[line]) == Bare(theirs[line])) ++line;
  const auto at = [&](const std::vector<absl::string_view>& lines) {
    return line < lines.size() && !lines[line].empty() ? lines[line] : absl::string_view("nothing");
  };
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", other - hashes.begin(), " has ", what, " other than rank 0's: in line ", line + 1,
                   " of its description rank 0 has `", at(first), "`, rank ", other - hashes.begin(), " has `",
                   at(theirs), "`; all ranks of a training must build the same"));
}

namespace {

// The ranks at the two ends of a message between pipeline stages, "0,2:message": both have the same such messages in
// the same order. Empty for other nodes.
std::string MessageEnds(const Node& n, int rank) {
  const bool sends = n.op->name == "stage_send";
  if (!sends && n.op->name != "stage_recv") return "";
  const int64_t peer = n.attrs.Int("peer");
  return absl::StrCat(sends ? rank : peer, ",", sends ? peer : rank, ":message");
}

}  // namespace

Status CompareSchedules(Groups& groups, const Graph& graph) {
  constexpr char kWhat[] = "the programs' collectives";
  std::map<std::string, std::string> schedules;  // by the group's ranks, "0,2", or by the ends of messages
  for (const Node& n : graph.nodes) {
    if (const std::string ends = MessageEnds(n, groups.rank()); !ends.empty()) {
      absl::StrAppend(&schedules[ends], n.attrs.Int("tag"), " ", ToString(n.outputs[0]), "\n");
      continue;
    }
    if (!IsCollective(n) || n.attrs.Has("peer")) continue;  // the two ends of a message differ
    std::string& schedule = schedules[absl::StrJoin(n.attrs.Ints("group"), ",")];
    absl::StrAppend(&schedule, n.op->name);
    for (const TensorType& t : n.outputs) absl::StrAppend(&schedule, " ", ToString(t));
    for (const auto& a : n.attrs.items()) {
      // A permutation's and an exchange's, of each rank its own; and the place among those of other groups.
      if (a.first == "source" || a.first == "target" || a.first == "messages" || a.first == mark::kBegins.name)
        continue;
      absl::StrAppend(&schedule, " ", a.first, "=", AttrText(a.second));
    }
    absl::StrAppend(&schedule, "\n");
  }
  std::string mine;
  for (const auto& [ranks, schedule] : schedules) absl::StrAppend(&mine, ranks, ":", StreamOf(schedule), "\n");
  ASSIGN_OR_RETURN(const auto all, GatherTexts(groups, mine, kWhat));
  for (size_t r = 0; r < all.size(); ++r) {
    for (const absl::string_view line : absl::StrSplit(all[r], '\n', absl::SkipEmpty())) {
      for (const absl::string_view member : absl::StrSplit(line.substr(0, line.find(':')), ',')) {
        size_t m = 0;
        if (!absl::SimpleAtoi(member, &m) || m >= all.size() || absl::StrContains(all[m], absl::StrCat(line, "\n")))
          continue;
        return absl::FailedPreconditionError(absl::StrCat("the program of rank ", std::max(r, m),
                                                          " has other collectives than rank ", std::min(r, m),
                                                          "'s: ranks must build one network and one optimizer"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace mslua
