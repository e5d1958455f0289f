// Text from outside (files, other processes, the network) made safe for terminals and logs.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace mslua {

// `text` with '?' in the place of control characters other than line ends and tabs, those of UTF-8 (C1) included.
std::string Printable(absl::string_view text);

// The same for a message of several lines: further lines are indented, so that none can pass for a message of its own.
std::string PrintableMessage(absl::string_view text);

}  // namespace mslua
