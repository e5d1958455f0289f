// What ms.summary records: core.summary_scalar, _histogram, _text, _image.
#pragma once

struct lua_State;

namespace mslua {

void OpenSummaries(lua_State* L);

}  // namespace mslua
