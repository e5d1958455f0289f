// The version of this program.
#pragma once

namespace mslua {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace mslua
