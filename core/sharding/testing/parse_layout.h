// Layouts as text, for tests.
#pragma once

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/sharding/layout.h"

namespace mslua {

// The inverse of Layout::ToString: "[a, -] sum(bc)". InvalidArgument quotes the text and says what is wrong with it.
StatusOr<Layout> ParseLayout(absl::string_view text);

}  // namespace mslua
