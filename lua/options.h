// core.options: the command line's flags and what ms.set_context sets, as Lua and C++ both read them.
#pragma once

#include <string>

struct lua_State;

namespace mslua {

// The registry's name of the table.
inline constexpr char kOptionsKey[] = "mslua.options";

// A field: "" , 0 or false when it is absent.
std::string OptionString(lua_State* L, const char* name);
int OptionInt(lua_State* L, const char* name);
bool OptionBool(lua_State* L, const char* name);

}  // namespace mslua
