#include "lua/op_module.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/op/registry.h"
#include "lua/object.h"
#include "lua/op_attrs.h"
#include "lua/op_call.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

// core.op(name, args, attrs); args.instance: the cell's field that holds the operator
StatusOr<int> CallOp(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "op: name"));
  ASSIGN_OR_RETURN(const OpDef* op, RequireOp(name));
  if (lua_type(L, 2) != LUA_TTABLE)
    return OpError(*op, absl::StrCat("arguments: expected a list, got ", Describe(L, 2)));
  Attrs attrs;
  if (!lua_isnoneornil(L, 3)) {
    if (lua_type(L, 3) != LUA_TTABLE)
      return OpError(*op, absl::StrCat("attributes: expected a table, got ", Describe(L, 3)));
    RETURN_IF_ERROR(ReadNamedAttrs(L, 3, *op, &attrs));
  }
  ASSIGN_OR_RETURN(const int64_t n, FieldInt(L, 2, "n", static_cast<int64_t>(lua_objlen(L, 2))));
  if (n < 0 || n > 8000 || !lua_checkstack(L, static_cast<int>(n) + 16)) return OpError(*op, "too many arguments");
  if (session.trace != nullptr) {
    ASSIGN_OR_RETURN(std::string instance, FieldString(L, 2, "instance", ""));
    session.trace->NameInstance(std::move(instance));
  }
  const int first = lua_gettop(L) + 1;
  for (int i = 1; i <= n; ++i) lua_rawgeti(L, 2, i);
  return CallOperator(L, session, *op, first, lua_gettop(L), std::move(attrs));
}

// core.functions.NAME(...)
StatusOr<int> CallFunction(lua_State* L, Session& session) {
  const auto* op = static_cast<const OpDef*>(lua_touserdata(L, lua_upvalueindex(1)));
  return CallOperator(L, session, *op, 1, lua_gettop(L), {});
}

// core.bind_attrs(name, args)
StatusOr<int> BindAttrs(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "bind_attrs: name"));
  ASSIGN_OR_RETURN(const OpDef* op, RequireOp(name));
  if (lua_type(L, 2) != LUA_TTABLE)
    return OpError(*op, absl::StrCat("expected a list of arguments, got ", Describe(L, 2)));
  ASSIGN_OR_RETURN(const int64_t n, FieldInt(L, 2, "n", static_cast<int64_t>(lua_objlen(L, 2))));
  if (n < 0 || n > 100) return OpError(*op, "too many arguments");
  const int first = lua_gettop(L) + 1;
  for (int i = 1; i <= n; ++i) lua_rawgeti(L, 2, i);
  Attrs attrs;
  RETURN_IF_ERROR(ReadAttrs(L, *op, first, lua_gettop(L), &attrs));
  lua_newtable(L);
  for (const auto& a : attrs.items()) {
    const auto def =
        std::find_if(op->attrs.begin(), op->attrs.end(), [&](const AttrDef& d) { return d.name == a.first; });
    PushAttr(L, def == op->attrs.end() ? AttrKind::kInts : KindForLua(*def), a.second);
    lua_setfield(L, -2, a.first.c_str());
  }
  return 1;
}

const char* KindText(AttrKind kind) {
  constexpr const char* kNames[] = {"bool", "int", "float", "string", "ints", "dtype", "axis", "axes"};
  return kNames[static_cast<int>(kind)];
}
const char* ClassText(TypeClass c) {
  constexpr const char* kNames[] = {"T", "index", "bool", "float", "any"};
  return kNames[static_cast<int>(c)];
}

void PushOpInfo(lua_State* L, const OpDef& op) {
  const auto set = [L](const char* key, absl::string_view text) {
    PushString(L, text);
    lua_setfield(L, -2, key);
  };
  const auto flag = [L](const char* key, bool on) {
    lua_pushboolean(L, on);
    lua_setfield(L, -2, key);
  };
  lua_newtable(L);
  set("name", op.name);
  if (!op.class_name.empty()) set("class", op.class_name);
  set("doc", op.doc);
  flag("elementwise", !op.formula.empty());
  flag("random", op.random);
  lua_newtable(L);
  for (size_t i = 0; i < UserInputs(op); ++i) {
    lua_newtable(L);
    set("name", op.inputs[i].name);
    set("type", ClassText(op.inputs[i].type));
    flag("variadic", op.inputs[i].variadic);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "inputs");
  lua_newtable(L);
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& a = op.attrs[i];
    lua_newtable(L);
    set("name", a.name);
    set("kind", KindText(KindForLua(a)));
    set("doc", a.doc);
    flag("required", a.required);
    if (!a.required) {
      PushAttr(L, KindForLua(a), a.fallback);
      lua_setfield(L, -2, "default");
    }
    if (!a.choices.empty()) {
      lua_newtable(L);
      for (size_t k = 0; k < a.choices.size(); ++k) {
        PushString(L, a.choices[k]);
        lua_rawseti(L, -2, static_cast<int>(k) + 1);
      }
      lua_setfield(L, -2, "choices");
    }
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "attrs");
  lua_newtable(L);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    PushString(L, op.outputs[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "outputs");
}

StatusOr<int> ListOps(lua_State* L, Session&) {
  lua_newtable(L);
  int n = 0;
  for (const OpDef& op : Operators().all()) {
    PushOpInfo(L, op);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// core.functions: closures are made on first use, so that a start does not pay for all of them.
StatusOr<int> FindFunction(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 2, "functions: name"));
  const OpDef* op = Operators().Find(name);
  if (op == nullptr) {
    lua_pushnil(L);
    return 1;
  }
  lua_pushlightuserdata(L, const_cast<OpDef*>(op));
  lua_pushcclosure(L, Entry<CallFunction>, 1);
  lua_pushvalue(L, -1);
  lua_setfield(L, 1, name.c_str());
  return 1;
}

}  // namespace

void OpenOperators(lua_State* L) {
  SetFunctions(L, {{"op", Entry<CallOp>}, {"bind_attrs", Entry<BindAttrs>}, {"ops", Entry<ListOps>}});
  lua_newtable(L);
  lua_newtable(L);
  lua_pushcfunction(L, Entry<FindFunction>);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "functions");
}

}  // namespace mslua
