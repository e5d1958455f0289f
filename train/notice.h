// Lines of a training that are no results.
#pragma once

#include <string>

namespace mslua {

// "mslua: note: ..." on stderr.
void PrintNote(const std::string& text);

}  // namespace mslua
