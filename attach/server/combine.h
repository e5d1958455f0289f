// One answer out of those of several ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "attach/server/command.h"

namespace mslua::endpoint {

// As the command says, or ListRanks for one that is answered at once, DoneTogether for one between steps. Not OK: no
// rank has answered well, or one of those that had to do it together has not. `took`: from the command to the last
// answer.
StatusOr<Answer> Combine(const Command& command, const Answers& answers, absl::Duration took);
// Of Lua at ranks: equal values are said once, "[0-3] 64".
StatusOr<Answer> CombineLua(const Answers& answers);

// One below the other.
Answer ListRanks(const Command& command, const Answers& answers);
// Equal answers are said once. Of a command that writes: with how many ranks have done it, and how fast.
Answer DoneTogether(const Command& command, const Answers& answers, absl::Duration took);
// Those that say something, of answers that are all OK: a command may be for other ranks.
Answers SpeakingOf(const Answers& answers);
// Ranks by what they say, in the order of their first rank.
std::vector<std::pair<std::string, std::vector<int>>> GroupAnswers(
    const Answers& answers, absl::FunctionRef<std::string(const StatusOr<Answer>&)> what);

}  // namespace mslua::endpoint
