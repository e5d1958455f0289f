#include "core/fields/limits.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua {

std::string LimitProblem(const Limits& limits, double v) {
  const bool ok = v == v && !(limits.min && v < *limits.min) && !(limits.above && v <= *limits.above) &&
                  !(limits.max && v > *limits.max) && !(limits.below && v >= *limits.below);
  if (ok) return "";
  if (limits.min && !limits.max && !limits.below) return absl::StrCat("expected ", *limits.min, " or more");
  if (limits.above && !limits.max && !limits.below) return absl::StrCat("expected more than ", *limits.above);
  std::string text = "expected ", between;
  for (const auto& [limit, word] : {std::pair(limits.min, "at least "), std::pair(limits.above, "above "),
                                    std::pair(limits.max, "at most "), std::pair(limits.below, "below ")}) {
    if (!limit) continue;
    absl::StrAppend(&text, between, word, *limit);
    between = " and ";
  }
  return between.empty() ? "expected a number" : text;
}

}  // namespace mslua
