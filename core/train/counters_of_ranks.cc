#include "core/train/counters_of_ranks.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/train/agreement.h"

namespace mslua {
namespace {

constexpr char kOfRank[] = "rank.";

}  // namespace

Status AddCountersOfRanks(Groups& groups, Counters* counters) {
  std::string mine;
  for (const auto& [name, value] : *counters) absl::StrAppend(&mine, name, "\t", absl::bit_cast<uint64_t>(value), "\n");
  ASSIGN_OR_RETURN(const auto all, GatherTexts(groups, mine, "the counters of a checkpoint"));
  Counters others;
  for (size_t r = 0; r < all.size(); ++r) {
    for (const absl::string_view line : absl::StrSplit(all[r], '\n', absl::SkipEmpty())) {
      const std::pair<std::string, absl::string_view> field = absl::StrSplit(line, '\t');
      uint64_t bits = 0;
      if (!absl::SimpleAtoi(field.second, &bits)) return absl::InternalError(absl::StrCat("a counter: '", line, "'"));
      const auto own = counters->find(field.first);
      if (own == counters->end() || absl::bit_cast<uint64_t>(own->second) != bits)
        others[absl::StrCat(kOfRank, r, ".", field.first)] = absl::bit_cast<double>(bits);
    }
  }
  counters->insert(others.begin(), others.end());
  return absl::OkStatus();
}

Counters CountersOfRank(const Counters& saved, int64_t saved_ranks, int64_t rank, int64_t ranks) {
  Counters own;
  std::vector<std::pair<absl::string_view, double>> others;  // "<r>.<name>"
  for (const auto& [name, value] : saved) {
    absl::string_view of_rank = name;
    if (absl::ConsumePrefix(&of_rank, kOfRank))
      others.emplace_back(of_rank, value);
    else
      own[name] = value;
  }
  for (const auto& [name, value] : others) {
    const std::pair<absl::string_view, std::string> parts = absl::StrSplit(name, absl::MaxSplits('.', 1));
    if (saved_ranks == ranks) {
      if (parts.first == absl::StrCat(rank)) own[parts.second] = value;
    } else if (const auto common = saved.find(parts.second); common != saved.end()) {
      own[parts.second] += (value - common->second) / static_cast<double>(saved_ranks);
    }
  }
  return own;
}

}  // namespace mslua
