// core.save_checkpoint and core.load_checkpoint.
#include "lua/checkpoint_lua.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "lua/object.h"
#include "lua/parameter.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

// core.save_checkpoint(path, values)
StatusOr<int> Save(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "save_checkpoint: path"));
  if (lua_type(L, 2) != LUA_TTABLE) {
    return absl::InvalidArgumentError(
        absl::StrCat("save_checkpoint: expected parameters or a table of tensors by name, got ", Describe(L, 2)));
  }
  std::vector<checkpoint::TensorData> tensors;
  std::vector<Tensor> kept;
  lua_pushnil(L);
  while (lua_next(L, 2)) {
    const int value = lua_gettop(L);
    const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, value);
    std::string name = p != nullptr ? (*p)->name : "";
    if (lua_type(L, -2) == LUA_TSTRING) name = lua_tostring(L, -2);
    if (name.empty())
      return absl::InvalidArgumentError(absl::StrCat("save_checkpoint: a tensor without a name at ", Describe(L, -2)));
    if (p != nullptr) {
      ASSIGN_OR_RETURN(const TensorView v, ValueOf(session, **p));
      tensors.push_back({name, v.type, v.data});
    } else {
      ASSIGN_OR_RETURN(Tensor t,
                       ReadTensor(session, L, value, absl::nullopt, absl::StrCat("save_checkpoint: '", name, "'")));
      tensors.push_back({name, t.type, t.data.get()});
      kept.push_back(std::move(t));
    }
    lua_pop(L, 1);
  }
  // By name, so that the file does not depend on the order of a Lua table.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  checkpoint::RunState run;
  run.seed = static_cast<int64_t>(session.seed);
  if (absl::EndsWith(path, ".safetensors")) {
    RETURN_IF_ERROR(checkpoint::WriteSafetensors(path, tensors).status());
  } else {
    RETURN_IF_ERROR(checkpoint::SaveCheckpoint(path, run, tensors));
  }
  return 0;
}

// core.load_checkpoint(path)
StatusOr<int> Load(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "load_checkpoint: path"));
  ASSIGN_OR_RETURN(const auto from, checkpoint::LoadCheckpoint(path));
  lua_newtable(L);
  for (const checkpoint::TensorRecord& record : from->manifest().tensors) {
    ASSIGN_OR_RETURN(Tensor t, NewTensor(session, record.type));
    RETURN_IF_ERROR(from->Read(record.name, t.data.get()));
    PushObject<Tensor>(L, std::move(t));
    lua_setfield(L, -2, record.name.c_str());
  }
  return 1;
}

}  // namespace

void OpenCheckpoints(lua_State* L) {
  SetFunctions(L, {{"save_checkpoint", Entry<Save>}, {"load_checkpoint", Entry<Load>}});
}

}  // namespace mslua
