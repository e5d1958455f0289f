// How a pre-tokenizer splits text at matches.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/status.h"
#include "core/text/part.h"
#include "core/text/part_reader.h"

namespace mslua::text {

// What becomes of the matches.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// The key "behavior".
Behavior ReadBehavior(PartReader* reader, const std::string& fallback);

// Calls its argument for the matches in a text, from left to right, none empty.
using MatchFinder = absl::FunctionRef<Status(absl::string_view, absl::FunctionRef<Status(size_t, size_t)>)>;

// Gives the pieces between and, by `behavior`, of the matches to `out`. With `invert` what is no match counts as one.
Status SplitAtMatches(Piece piece, MatchFinder find, Behavior behavior, bool invert, PieceSink out);

// The same for the characters of which `is` is true, each a match.
Status SplitAtChars(Piece piece, bool (*is)(uint32_t), Behavior behavior, PieceSink out);

}  // namespace mslua::text
