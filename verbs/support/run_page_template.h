// The page around the data of `mslua report`: what stands before and after the JSON list of runs.
#pragma once

namespace mslua {

extern const char kRunPageHead[], kRunPageTail[];

}  // namespace mslua
