// A curve in the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mslua::endpoint {

// A curve of `values`, `width` x `height` characters; `first` is the step of the first value.
std::string DrawCurve(const std::vector<float>& values, int64_t first, int width, int height, const std::string& title);

}  // namespace mslua::endpoint
