// Tables of Lua: lists, and named arguments.
#pragma once

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// InvalidArgument where the table at `index` has keys besides 1 to its length: what they name would be dropped.
Status CheckList(lua_State* L, int index, absl::string_view what);
// Whether there is a table of names at `index`, without a list part.
bool IsNames(lua_State* L, int index);

}  // namespace mslua
