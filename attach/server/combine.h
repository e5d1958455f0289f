// One answer out of those of several ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "attach/server/boundary.h"
#include "attach/server/command.h"

namespace mslua::endpoint {

// By rank. Equal answers are said once. Not OK: no rank has answered well, or one of those that had to do it together
// has not. `took`: from the command to the last answer.
StatusOr<Answer> Combine(const Command& command, const std::map<int, StatusOr<Answer>>& answers, absl::Duration took);
// Of Lua at ranks: equal values are said once, "[0-3] 64".
StatusOr<Answer> CombineLua(const std::map<int, StatusOr<Answer>>& answers);

// From the JSON of each rank's .diag ("" for one that does not answer): "ranks 0,1,3 wait for rank 2, in its data for
// 4.1 s, at recipe.lua:14". Empty when nobody is waited for.
std::string WhoIsWaitedFor(const std::map<int, std::string>& diagnoses);

}  // namespace mslua::endpoint
