// What .stat and .grad answer.
#pragma once

#include "attach/server/command.h"
#include "attach/server/watch_list.h"

namespace mslua::endpoint {

StatusOr<Answer> DescribeStatistics(const Shown& shown);

// Of a tensor that all ranks have: identical, or the statistics of each.
StatusOr<Answer> CombineStatistics(const Command& command, const Answers& answers, absl::Duration took);

}  // namespace mslua::endpoint
