#include "core/fields/limits.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua {

std::string LimitWords(const Limits& limits) {
  std::string text;
  for (const auto& [limit, word] : {std::pair(limits.min, "at least "), std::pair(limits.above, "above "),
                                    std::pair(limits.max, "at most "), std::pair(limits.below, "below ")}) {
    if (limit) absl::StrAppend(&text, text.empty() ? "" : " and ", word, *limit);
  }
  return text;
}

bool Within(const Limits& limits, double v) {
  return v == v && !(limits.min && v < *limits.min) && !(limits.above && v <= *limits.above) &&
         !(limits.max && v > *limits.max) && !(limits.below && v >= *limits.below);
}

std::string LimitProblem(const Limits& limits, double v) {
  if (Within(limits, v)) return "";
  if (limits.min && !limits.max && !limits.below) return absl::StrCat("expected ", *limits.min, " or more");
  if (limits.above && !limits.max && !limits.below) return absl::StrCat("expected more than ", *limits.above);
  const std::string words = LimitWords(limits);
  return absl::StrCat("expected ", words.empty() ? "a number" : words);
}

}  // namespace mslua
