#include "core/text/split.h"

#include "core/text/unicode.h"

namespace mslua::text {
namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Joins neighbours: a match with the part before it, or all of one kind.
std::vector<Part> Joined(const std::vector<Part>& parts, Behavior behavior) {
  std::vector<Part> out;
  bool after_match = false;
  for (const Part& part : parts) {
    const bool join = behavior == Behavior::kContiguous ? !out.empty() && out.back().match == part.match
                                                        : !out.empty() && part.match && !after_match;
    if (join)
      out.back().end = part.end;
    else
      out.push_back(part);
    after_match = part.match;
  }
  return out;
}

// Joins each match with the part behind it.
std::vector<Part> JoinedWithNext(const std::vector<Part>& parts) {
  std::vector<Part> out;
  bool before_match = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->match && !before_match && !out.empty())
      out.back().begin = part->begin;
    else
      out.push_back(*part);
    before_match = part->match;
  }
  return {out.rbegin(), out.rend()};
}

}  // namespace

Behavior ReadBehavior(PartReader* reader, const std::string& fallback) {
  const std::string word = reader->Choice(
      "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}, fallback);
  if (word == "Removed") return Behavior::kRemoved;
  if (word == "Isolated") return Behavior::kIsolated;
  if (word == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  return word == "MergedWithNext" ? Behavior::kMergedWithNext : Behavior::kContiguous;
}

Status SplitAtMatches(Piece piece, MatchFinder find, Behavior behavior, bool invert, PieceSink out) {
  const auto give = [&](size_t begin, size_t end) {
    return out({piece.text.substr(begin, end - begin), piece.first && begin == 0});
  };
  std::vector<Part> parts;
  const bool direct = behavior == Behavior::kIsolated || behavior == Behavior::kRemoved;
  const auto take = [&](size_t begin, size_t end, bool match) -> Status {
    if (begin == end) return absl::OkStatus();
    match = match != invert;
    if (!direct) {
      parts.push_back({begin, end, match});
      return absl::OkStatus();
    }
    return match && behavior == Behavior::kRemoved ? absl::OkStatus() : give(begin, end);
  };
  size_t before = 0;
  RETURN_IF_ERROR(find(piece.text, [&](size_t begin, size_t end) -> Status {
    RETURN_IF_ERROR(take(before, begin, false));
    before = end;
    return take(begin, end, true);
  }));
  RETURN_IF_ERROR(take(before, piece.text.size(), false));
  if (direct) return absl::OkStatus();
  parts = behavior == Behavior::kMergedWithNext ? JoinedWithNext(parts) : Joined(parts, behavior);
  for (const Part& part : parts) RETURN_IF_ERROR(give(part.begin, part.end));
  return absl::OkStatus();
}

Status SplitAtChars(Piece piece, bool (*is)(uint32_t), Behavior behavior, PieceSink out) {
  const auto find = [is](absl::string_view text, absl::FunctionRef<Status(size_t, size_t)> found) -> Status {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      if (is(NextChar(text, &at))) RETURN_IF_ERROR(found(begin, at));
    }
    return absl::OkStatus();
  };
  return SplitAtMatches(piece, find, behavior, /*invert=*/false, out);
}

}  // namespace mslua::text
