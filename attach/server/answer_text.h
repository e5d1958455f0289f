// Words that several commands use in their answers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mslua::endpoint {

// "12.0 MiB"
std::string BytesText(int64_t n);
// "0-3,5"
std::string RankList(const std::vector<int>& ranks);
// With a line end, unless it is empty or ends with one.
std::string WithLineEnd(const std::string& text);

}  // namespace mslua::endpoint
