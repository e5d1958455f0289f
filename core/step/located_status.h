// Errors that name a line of the recipe.
#pragma once

#include "core/base/status.h"
#include "core/graph/graph.h"

namespace mslua {

// The error with "recipe.lua:12: " before its message, which nothing else will then be put before. As it is where
// `where` is null or has no file.
Status AtLine(const Status& status, const Location* where);
// Whether the message names the line already.
bool IsLocated(const Status& status);
void MarkLocated(Status* status);

}  // namespace mslua
