// Which oneDNN computes.
#pragma once

#include <string>

namespace mslua::onednn {

// Of the library that is loaded: "2.6.3".
std::string Version();

}  // namespace mslua::onednn
