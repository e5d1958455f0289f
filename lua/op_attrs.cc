#include "lua/op_attrs.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"
#include "core/op/marks.h"
#include "core/step/operator_info.h"
#include "lua/lists.h"
#include "lua/object.h"

namespace mslua {
namespace {

std::vector<std::string> AttrNames(const OpDef& op) {
  std::vector<std::string> names;
  for (const AttrDef& a : op.attrs) names.push_back(a.name);
  return names;
}

// The value of a mark (core/op/marks.h): whatever it is.
StatusOr<AttrValue> ReadFreeAttr(lua_State* L, int index, absl::string_view what) {
  switch (lua_type(L, index)) {
    case LUA_TBOOLEAN:
      return AttrValue(lua_toboolean(L, index) != 0);
    case LUA_TNUMBER: {
      const double d = lua_tonumber(L, index);
      if (d == std::floor(d) && std::fabs(d) < 9e15) return AttrValue(static_cast<int64_t>(d));
      return AttrValue(d);
    }
    case LUA_TSTRING:
      return AttrValue(std::string(lua_tostring(L, index)));
    default: {
      ASSIGN_OR_RETURN(std::vector<int64_t> ints, ReadInts(L, index, what));
      return AttrValue(std::move(ints));
    }
  }
}

// A plain table of named values (no list part), as the last argument. An empty one is the value of `next`, the
// attribute that stands here, where that is a list and required: the shape of a tensor without dimensions.
bool IsNamedTable(lua_State* L, int index, const AttrDef* next) {
  if (lua_type(L, index) != LUA_TTABLE || lua_objlen(L, index) > 0) return false;
  const bool list = next != nullptr && (next->kind == AttrKind::kInts || next->kind == AttrKind::kAxes);
  return IsNames(L, index) || !list || !next->required;
}

bool IsSubscripts(absl::string_view name) { return name == "begin" || name == "end"; }

}  // namespace

// An axis that the operator makes is none of its input's, so it is an integer there, and subscripts are integers; for
// Lua they count as all axes do.
AttrKind KindForLua(const AttrDef& attr) {
  if (attr.kind == AttrKind::kInt && attr.name == "axis") return AttrKind::kAxis;
  if (attr.kind == AttrKind::kInts && IsSubscripts(attr.name)) return AttrKind::kAxes;
  return attr.kind;
}

StatusOr<AttrValue> ReadAttr(lua_State* L, int index, const OpDef& op, const AttrDef& attr) {
  const std::string what = absl::StrCat(UserName(op), ": attribute '", attr.name, "'");
  switch (KindForLua(attr)) {
    case AttrKind::kBool: {
      ASSIGN_OR_RETURN(const bool v, ReadBool(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kInt: {
      ASSIGN_OR_RETURN(const int64_t v, ReadInt(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kFloat: {
      ASSIGN_OR_RETURN(const double v, ReadNumber(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kString: {
      ASSIGN_OR_RETURN(std::string v, ReadString(L, index, what));
      return AttrValue(std::move(v));
    }
    case AttrKind::kDType: {
      ASSIGN_OR_RETURN(const DType v, ReadDType(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kInts: {
      ASSIGN_OR_RETURN(std::vector<int64_t> v, ReadInts(L, index, what));
      return AttrValue(std::move(v));
    }
    case AttrKind::kAxis: {
      ASSIGN_OR_RETURN(const int64_t v, ReadInt(L, index, what));
      ASSIGN_OR_RETURN(const int64_t axis, AxisFromLua(v, what));
      return AttrValue(axis);
    }
    case AttrKind::kAxes: {
      ASSIGN_OR_RETURN(std::vector<int64_t> v, ReadInts(L, index, what));
      for (int64_t& a : v) {
        if (a == 0 && IsSubscripts(attr.name))
          return absl::InvalidArgumentError(absl::StrCat(what, ": subscripts count from 1, or from the end with -1"));
        ASSIGN_OR_RETURN(a, AxisFromLua(a, what));
      }
      return AttrValue(std::move(v));
    }
  }
  return absl::InternalError("unknown kind of attribute");
}

void PushAttr(lua_State* L, AttrKind kind, const AttrValue& value) {
  const bool axis = kind == AttrKind::kAxis || kind == AttrKind::kAxes;
  const auto count = [axis](int64_t v) { return axis && v >= 0 ? v + 1 : v; };
  if (const bool* b = std::get_if<bool>(&value)) {
    lua_pushboolean(L, *b);
  } else if (const int64_t* i = std::get_if<int64_t>(&value)) {
    lua_pushnumber(L, static_cast<double>(count(*i)));
  } else if (const double* d = std::get_if<double>(&value)) {
    lua_pushnumber(L, *d);
  } else if (const std::string* s = std::get_if<std::string>(&value)) {
    PushString(L, *s);
  } else if (const DType* t = std::get_if<DType>(&value)) {
    lua_pushstring(L, LongName(*t));
  } else {
    std::vector<int64_t> ints = std::get<std::vector<int64_t>>(value);
    for (int64_t& v : ints) v = count(v);
    PushInts(L, ints);
  }
}

Status ReadNamedAttrs(lua_State* L, int index, const OpDef& op, Attrs* attrs) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      return OpError(op, absl::StrCat("attributes are named; got the key ", Describe(L, -2)));
    const std::string name = lua_tostring(L, -2);
    const auto def = std::find_if(op.attrs.begin(), op.attrs.end(), [&](const AttrDef& a) { return a.name == name; });
    if (def != op.attrs.end()) {
      ASSIGN_OR_RETURN(AttrValue v, ReadAttr(L, lua_gettop(L), op, *def));
      attrs->Set(name, std::move(v));
    } else if (name[0] == '_') {
      ASSIGN_OR_RETURN(AttrValue v, ReadFreeAttr(L, lua_gettop(L), name));
      if (const std::string problem = MarkProblem(name, v); !problem.empty()) return OpError(op, problem);
      attrs->Set(name, std::move(v));
    } else {
      return OpError(
          op, absl::StrCat("unknown attribute '", name, "'", DidYouMean(name, AttrNames(op)),
                           op.attrs.empty() ? "; it has none" : "; attributes: ", absl::StrJoin(AttrNames(op), ", ")));
    }
    lua_pop(L, 1);
  }
  return absl::OkStatus();
}

Status ReadAttrs(lua_State* L, const OpDef& op, int first, int last, Attrs* attrs) {
  while (last >= first && lua_isnil(L, last)) --last;
  size_t next = 0;
  for (int i = first; i <= last; ++i) {
    const AttrDef* def = next < op.attrs.size() ? &op.attrs[next++] : nullptr;
    if (i == last && IsNamedTable(L, i, def)) {
      for (int k = first; k < i; ++k) {
        const std::string& name = op.attrs[static_cast<size_t>(k - first)].name;
        const StackGuard guard(L);
        lua_getfield(L, i, name.c_str());
        if (!lua_isnil(L, -1) && !lua_isnil(L, k))
          return OpError(op, absl::StrCat("attribute '", name, "' is given twice, by its place and by its name"));
      }
      return ReadNamedAttrs(L, i, op, attrs);
    }
    if (def == nullptr) {
      return OpError(op, absl::StrCat("takes ", Counted(static_cast<int64_t>(UserInputs(op)), "tensor"), " and ",
                                      Counted(static_cast<int64_t>(op.attrs.size()), "attribute"),
                                      "; one argument too many: ", Describe(L, i)));
    }
    if (lua_isnil(L, i)) continue;
    ASSIGN_OR_RETURN(AttrValue v, ReadAttr(L, i, op, *def));
    attrs->Set(def->name, std::move(v));
  }
  return absl::OkStatus();
}

}  // namespace mslua
