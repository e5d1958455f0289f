// Tables of Lua: lists, and named arguments.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// InvalidArgument: element `place`, from 1, of a list is nil.
Status NilInList(absl::string_view what, int64_t place);
// InvalidArgument where the table at `index` has keys besides 1 to its length, or a nil between its elements.
Status CheckList(lua_State* L, int index, absl::string_view what);
// Whether there is a table of names at `index`, without a list part.
bool IsNames(lua_State* L, int index);

}  // namespace mslua
