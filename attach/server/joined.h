// What ranks say of one thing, joined: the parts of a tensor, and their calls of one collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attach/server/boundary.h"

namespace mslua::endpoint {

// "0-3,5"
std::string RankList(const std::vector<int>& ranks);

// From each rank's JSON of .layout: which rank holds which part, as a table of the parts along the one or two
// dimensions that are sharded first, the rest as a list. Elements count from 1.
Answer DrawLayout(const std::map<int, StatusOr<Answer>>& answers);

// From each rank's JSON of .comm: one line a collective, with who has done it, waits in it, or has not come.
Answer JoinCalls(const std::map<int, StatusOr<Answer>>& answers);

}  // namespace mslua::endpoint
