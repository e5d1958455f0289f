// What .stat and .grad answer.
#pragma once

#include "attach/server/command.h"
#include "attach/server/watch_list.h"

namespace mslua::endpoint {

// The statistics of a tensor of this rank as a line of text and as JSON; an empty answer where other ranks are asked
// and this one is not.
StatusOr<Answer> DescribeStatistics(const Shown& shown);

// Of a tensor that all ranks have: identical, or the statistics of each.
StatusOr<Answer> CombineStatistics(const Command& command, const Answers& answers, absl::Duration took);

}  // namespace mslua::endpoint
