#include "core/base/text.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {

int EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the table of distances between prefixes: a swap looks back two.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string Closest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestName = 64, kShortestPrefix = 3;
  if (name.empty() || name.size() > kLongestName) return "";
  const std::string lower = absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
  std::string best;
  std::tuple<int, bool, int, bool, int> best_rank;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongestName) continue;
    const std::string lower_candidate = absl::AsciiStrToLower(candidate);
    const int edits = EditDistance(lower, lower_candidate);
    const int longer = static_cast<int>(std::max(name.size(), candidate.size()));
    // Replacing every letter is no resemblance: 'x' is not meant to be 'y'.
    const bool near = edits < longer && edits <= std::max(1, longer / 3);
    const bool begins = name.size() >= kShortestPrefix && absl::StartsWith(lower_candidate, lower);
    if (!near && !begins) continue;
    const size_t both = std::min(name.size(), candidate.size());
    size_t shared = 0;
    while (shared < both && name[shared] == candidate[shared]) ++shared;
    const auto rank = std::make_tuple(begins ? std::min(edits, 1) : edits, EditDistance(name, candidate) != edits,
                                      -static_cast<int>(shared), !absl::StartsWith(lower, lower_candidate), edits);
    if (best.empty() || rank < best_rank) {
      best = candidate;
      best_rank = rank;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string best = Closest(name, candidates);
  return best.empty() ? "" : absl::StrCat(" (did you mean '", best, "'?)");
}

std::string Counted(int64_t n, std::string_view noun) {
  return absl::StrCat(n, " ", absl::string_view(noun.data(), noun.size()), n == 1 ? "" : "s");
}

std::string SomeOf(const std::vector<std::string>& names, size_t most) {
  const size_t shown = std::min(names.size(), most);
  const std::string text = absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  return shown == names.size() ? text : absl::StrCat(text, " and ", names.size() - shown, " more");
}

}  // namespace mslua
