// What Lua holds of C++: userdata of a few kinds, each with a metatable of its own.
#pragma once

#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/base/tensor.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

struct ParameterData;

// Name of a userdata kind's metatable in the registry; also what core.kind says of it.
template <class T>
struct KindName;
template <>
struct KindName<Tensor> {
  static constexpr const char* value = "Tensor";
};
template <>
struct KindName<std::shared_ptr<ParameterData>> {
  static constexpr const char* value = "Parameter";
};

// The object at `index`, or null when it is something else.
template <class T>
T* ToObject(lua_State* L, int index) {
  void* p = lua_touserdata(L, index);
  if (p == nullptr || !lua_getmetatable(L, index)) return nullptr;
  lua_getfield(L, LUA_REGISTRYINDEX, KindName<T>::value);
  const bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? static_cast<T*>(p) : nullptr;
}

// Pushes a new userdata that holds `object`.
template <class T>
void PushObject(lua_State* L, T object) {
  void* memory = lua_newuserdata(L, sizeof(T));
  new (memory) T(std::move(object));
  luaL_getmetatable(L, KindName<T>::value);
  lua_setmetatable(L, -2);
}

// The kind's __gc. Lua code can call it too, with anything and twice: what it has destroyed is of no kind any more.
template <class T>
int DestroyObject(lua_State* L) {
  T* object = ToObject<T>(L, 1);
  if (object == nullptr) return 0;
  object->~T();
  lua_pushnil(L);
  lua_setmetatable(L, 1);
  return 0;
}

// Makes the kind's metatable with __gc and leaves it on the stack.
template <class T>
void NewKind(lua_State* L) {
  luaL_newmetatable(L, KindName<T>::value);
  lua_pushcfunction(L, DestroyObject<T>);
  lua_setfield(L, -2, "__gc");
  lua_pushstring(L, KindName<T>::value);
  lua_setfield(L, -2, "__name");
}

// What a value is called in messages: "a Tensor", "a table", "3", "\"x\"".
std::string Describe(lua_State* L, int index);

// Reading arguments; none raises. `what` names the argument in the error ("shape", "MatMul: attribute 'axis'").
StatusOr<int64_t> ReadInt(lua_State* L, int index, absl::string_view what);
StatusOr<double> ReadNumber(lua_State* L, int index, absl::string_view what);
StatusOr<bool> ReadBool(lua_State* L, int index, absl::string_view what);
StatusOr<std::string> ReadString(lua_State* L, int index, absl::string_view what);
StatusOr<DType> ReadDType(lua_State* L, int index, absl::string_view what);
// A list of integers, or one integer.
StatusOr<std::vector<int64_t>> ReadInts(lua_State* L, int index, absl::string_view what);
// A shape: sizes not negative, rank and bytes within limits.
StatusOr<Shape> ReadShape(lua_State* L, int index, absl::string_view what);
// Fields of the table at `index`; nil is `fallback`.
StatusOr<int64_t> FieldInt(lua_State* L, int index, const char* name, int64_t fallback);
StatusOr<double> FieldNumber(lua_State* L, int index, const char* name, double fallback);
StatusOr<bool> FieldBool(lua_State* L, int index, const char* name, bool fallback);
StatusOr<std::string> FieldString(lua_State* L, int index, const char* name, std::string fallback);
// An error for a string key of the table that is not among `known`.
Status CheckFields(lua_State* L, int index, absl::string_view what, const std::vector<std::string>& known);

// An axis that counts from 1, or from the end, as the operators count: from 0. 0 is an error.
StatusOr<int64_t> AxisFromLua(int64_t axis, absl::string_view what);

// Puts functions into the table on the top of the stack.
struct NamedFunction {
  const char* name;
  lua_CFunction function;
};
void SetFunctions(lua_State* L, std::initializer_list<NamedFunction> functions);

void PushString(lua_State* L, absl::string_view text);
void PushInts(lua_State* L, absl::Span<const int64_t> values);

// Keeps `index` made absolute while the stack grows.
inline int AbsoluteIndex(lua_State* L, int index) {
  return index < 0 && index > LUA_REGISTRYINDEX ? lua_gettop(L) + index + 1 : index;
}

// Restores the stack's height at the end of a scope.
class StackGuard {
 public:
  explicit StackGuard(lua_State* L) : lua_(L), top_(lua_gettop(L)) {}
  ~StackGuard() { lua_settop(lua_, top_); }
  StackGuard(const StackGuard&) = delete;
  StackGuard& operator=(const StackGuard&) = delete;

 private:
  lua_State* lua_;
  int top_;
};

}  // namespace mslua
