// core.save_checkpoint, load_checkpoint, load_named, seed_of, compare_unsaved, match_names, open_weights,
// read_when_made and read_json.
#include "lua/checkpoint_lua.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/input_file.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/tensor_names.h"
#include "core/data/numpy_file.h"
#include "core/json/json.h"
#include "core/step/parameter.h"
#include "core/train/agreement.h"
#include "core/train/shared_checkpoint.h"
#include "lua/graph_lua.h"
#include "lua/object.h"
#include "lua/stored_value.h"
#include "lua/tensor_lua.h"
#include "train/run_folder.h"
#include "train/unsaved_values.h"

namespace mslua {

// save_npz.cc
Status SaveNpz(const std::string& path, const std::vector<checkpoint::TensorData>& tensors);

// A safetensors file that is open: its tensors are read one at a time.
using Weights = std::shared_ptr<checkpoint::Checkpoint>;
template <>
struct KindName<Weights> {
  static constexpr const char* value = "Weights";
};

namespace {

// The table of strings at `index`, or nothing.
StatusOr<std::map<std::string, std::string>> ReadMetadata(lua_State* L, int index) {
  std::map<std::string, std::string> metadata;
  if (lua_isnoneornil(L, index)) return metadata;
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(
        absl::StrCat("save_checkpoint: metadata: expected a table of strings, got ", Describe(L, index)));
  lua_pushnil(L);
  while (lua_next(L, index)) {
    if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
      return absl::InvalidArgumentError("save_checkpoint: metadata: expected a table of strings");
    metadata[lua_tostring(L, -2)] = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  return metadata;
}

// core.save_checkpoint(path, values, metadata)
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
      RETURN_IF_ERROR(CheckWhole(session.state(), **p));
      ASSIGN_OR_RETURN(const TensorView v, ValueOf(session.state(), **p));
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
  ASSIGN_OR_RETURN(const auto metadata, ReadMetadata(L, 3));
  checkpoint::RunState run;
  run.seed = static_cast<int64_t>(session.state().seed);
  if (absl::EndsWith(path, ".safetensors")) {
    RETURN_IF_ERROR(checkpoint::WriteSafetensors(path, tensors, metadata).status());
  } else if (absl::EndsWith(path, ".npz")) {
    RETURN_IF_ERROR(SaveNpz(path, tensors));
  } else {
    RETURN_IF_ERROR(checkpoint::SaveCheckpoint(path, run, tensors));
  }
  return 0;
}

// Pushes the tensors of a checkpoint, as a table by name.
Status PushTensors(lua_State* L, Session& session, checkpoint::Checkpoint& from) {
  if (!from.note().empty()) std::fprintf(stderr, "mslua: note: %s\n", from.note().c_str());
  lua_newtable(L);
  for (const checkpoint::TensorRecord& record : from.manifest().tensors) {
    ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), record.type));
    RETURN_IF_ERROR(from.Read(record.name, t.data.get()));
    PushObject<Tensor>(L, std::move(t));
    lua_setfield(L, -2, record.name.c_str());
  }
  return absl::OkStatus();
}

// Pushes the arrays of an .npz file, as a table by name.
Status PushArrays(lua_State* L, Session& session, const std::string& path) {
  const auto all = [](const std::string&) { return true; };
  ASSIGN_OR_RETURN(const std::vector<data::NumpyArray> arrays, data::OpenNumpy(path, all));
  lua_newtable(L);
  for (const data::NumpyArray& array : arrays) {
    ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), array.type));
    RETURN_IF_ERROR(data::ReadNumpy(array, t.data.get()));
    lua_getfield(L, -1, array.name.c_str());
    if (!lua_isnil(L, -1)) return absl::DataLossError(absl::StrCat(path, ": two arrays are called '", array.name, "'"));
    lua_pop(L, 1);
    PushObject<Tensor>(L, std::move(t));
    lua_setfield(L, -2, array.name.c_str());
  }
  return absl::OkStatus();
}

// core.load_checkpoint(path)
StatusOr<int> Load(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "load_checkpoint: path"));
  if (absl::EndsWith(path, ".npz")) {
    RETURN_IF_ERROR(WithExitCode(PushArrays(L, session, path), kExitStorage));
    lua_pushnumber(L, 0);
    return 2;
  }
  const std::string slices = checkpoint::SlicesNote(path);
  if (!slices.empty()) return absl::InvalidArgumentError(absl::StrCat("load_checkpoint: ", slices));
  ASSIGN_OR_RETURN(const auto from, WithExitCode(checkpoint::LoadCheckpoint(path), kExitStorage));
  RETURN_IF_ERROR(PushTensors(L, session, *from));
  lua_pushnumber(L, CounterOf(from->manifest().run.counters, kUnsavedCounter, 0));
  return 2;
}

// A checkpoint as a command names it.
struct Named {
  std::string word, recipe, directory;
  Groups* together = nullptr;  // the ranks that ask for it at the same time; null: this one alone

  StatusOr<std::string> Place() const { return CheckpointPlace(word, recipe, directory, "give one with --ckpt PATH"); }
};

// The arguments word, recipe, directory or nil, and together.
StatusOr<Named> ReadNamed(lua_State* L, Session& session, const std::string& function) {
  Named named;
  ASSIGN_OR_RETURN(named.word, ReadString(L, 1, function + ": word"));
  ASSIGN_OR_RETURN(named.recipe, ReadString(L, 2, function + ": recipe"));
  if (!lua_isnil(L, 3)) {
    ASSIGN_OR_RETURN(named.directory, ReadString(L, 3, function + ": directory"));
  }
  if (lua_toboolean(L, 4)) named.together = session.groups();
  return named;
}

// core.seed_of(word, recipe, directory or nil, together): the seed, or nil
StatusOr<int> SeedOf(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const Named named, ReadNamed(L, session, "seed_of"));
  // Rank 0 alone may be able to read it. What is wrong with a checkpoint says who loads it.
  const auto find = [&]() -> StatusOr<std::string> {
    const auto place = named.Place();
    if (!place.ok()) return std::string();
    const auto run = checkpoint::RunOf(*place);
    return run.ok() && run->step > 0 ? absl::StrCat(run->seed) : std::string();
  };
  ASSIGN_OR_RETURN(const std::string text, TextOfFirstRank(named.together, find, "the checkpoint's seed"));
  int64_t seed = 0;
  if (absl::SimpleAtoi(text, &seed))
    lua_pushnumber(L, static_cast<double>(seed));
  else
    lua_pushnil(L);
  return 1;
}

// core.load_named(word, recipe, directory or nil, together): values, path, step, unsaved, seed
StatusOr<int> LoadNamed(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const Named named, ReadNamed(L, session, "load_named"));
  Groups* const together = named.together;
  const auto find = [&] { return named.Place(); };
  ASSIGN_OR_RETURN(const std::string place, TextOfFirstRank(together, find, "the checkpoint"));
  SharedCheckpoint from;
  if (together == nullptr) {
    ASSIGN_OR_RETURN(from.own, WithExitCode(checkpoint::LoadCheckpoint(place), kExitStorage));
  } else {
    ASSIGN_OR_RETURN(from, WithExitCode(OpenOnAllRanks(*together, place), kExitStorage));
    RETURN_IF_ERROR(WithExitCode(FetchAll(*together, from), kExitStorage));
  }
  RETURN_IF_ERROR(PushTensors(L, session, *from.own));
  PushString(L, from.own->path());
  lua_pushnumber(L, static_cast<double>(from.own->manifest().run.step));
  lua_pushnumber(L, CounterOf(from.own->manifest().run.counters, kUnsavedCounter, 0));
  lua_pushnumber(L, static_cast<double>(from.own->manifest().run.seed));
  return 5;
}

// core.recorded_checkpoints(run): the directory of checkpoints that a run folder names, or nil
StatusOr<int> RecordedCheckpoints(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string run, ReadString(L, 1, "recorded_checkpoints: run"));
  const std::string place = checkpoint::CheckpointsOfRun(run);
  if (place == absl::StrCat(run, "/", kRunCheckpoints))
    lua_pushnil(L);
  else
    PushString(L, place);
  return 1;
}

// core.compare_unsaved(unsaved, parameters, path)
StatusOr<int> CompareUnsavedValues(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const double saved, ReadNumber(L, 1, "compare_unsaved: unsaved"));
  ASSIGN_OR_RETURN(const auto parameters, ReadParameters(L, 2, "compare_unsaved: parameters"));
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 3, "compare_unsaved: path"));
  if (saved == 0) return 0;
  std::vector<std::string> names;
  for (const auto& p : parameters) names.push_back(p->name);
  ASSIGN_OR_RETURN(const double here, DigestOfUnsaved(session.state(), parameters, names, /*together=*/nullptr));
  RETURN_IF_ERROR(WithExitCode(CompareUnsaved(saved, here, path, parameters, names), kExitStorage));
  return 0;
}

StatusOr<std::vector<std::string>> ReadNames(lua_State* L, int index) {
  std::vector<std::string> names;
  const int n = static_cast<int>(lua_objlen(L, index));
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, index, i);
    ASSIGN_OR_RETURN(std::string name, ReadString(L, -1, "match_names"));
    names.push_back(std::move(name));
    lua_pop(L, 1);
  }
  return names;
}

// core.match_names(wanted, stored[, unsaved])
StatusOr<int> MatchNames(lua_State* L, Session&) {
  if (lua_type(L, 1) != LUA_TTABLE || lua_type(L, 2) != LUA_TTABLE)
    return absl::InvalidArgumentError("match_names: expected two lists of names");
  ASSIGN_OR_RETURN(const auto wanted, ReadNames(L, 1));
  ASSIGN_OR_RETURN(const auto stored, ReadNames(L, 2));
  std::vector<std::string> unsaved;
  if (lua_type(L, 3) == LUA_TTABLE) {
    ASSIGN_OR_RETURN(unsaved, ReadNames(L, 3));
  }
  lua_newtable(L);
  for (const auto& [name, older] : checkpoint::OlderNames(wanted, stored)) {
    PushString(L, older);
    lua_setfield(L, -2, name.c_str());
  }
  absl::flat_hash_set<absl::string_view> all(stored.begin(), stored.end());
  all.insert(wanted.begin(), wanted.end());
  all.insert(unsaved.begin(), unsaved.end());
  lua_newtable(L);
  for (const std::string& name : stored) {
    if (checkpoint::StateOf(name, all).empty()) continue;
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, name.c_str());
  }
  return 2;
}

StatusOr<Weights> SelfWeights(lua_State* L) {
  const auto* weights = ToObject<Weights>(L, 1);
  if (weights == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("expected weights before the colon, got ", Describe(L, 1)));
  return *weights;
}

// core.open_weights(path)
StatusOr<int> OpenWeights(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "open_weights: path"));
  ASSIGN_OR_RETURN(auto from, checkpoint::Checkpoint::Open(path));
  PushObject<Weights>(L, Weights(std::move(from)));
  return 1;
}

// weights:tensors(): a list of {name, dtype, shape}, by name
StatusOr<int> ListWeights(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const Weights weights, SelfWeights(L));
  lua_newtable(L);
  int n = 0;
  for (const checkpoint::TensorRecord& record : weights->manifest().tensors) {
    lua_createtable(L, 0, 3);
    PushString(L, record.name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, LongName(record.type.dtype));
    lua_setfield(L, -2, "dtype");
    PushInts(L, record.type.shape);
    lua_setfield(L, -2, "shape");
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// weights:read(name)
StatusOr<int> ReadWeight(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const Weights weights, SelfWeights(L));
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 2, "read: name"));
  const checkpoint::TensorRecord* record = weights->Find(name);
  if (record == nullptr) return absl::NotFoundError(absl::StrCat("no tensor '", name, "' in ", weights->path()));
  ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), record->type));
  RETURN_IF_ERROR(weights->Read(name, t.data.get()));
  PushObject<Tensor>(L, std::move(t));
  return 1;
}

// core.read_when_made({parameter}, pieces, transposed): gives it the value of tensors, a list of {from, name}. One
// without a value yet reads them when it gets memory, and then its rank's part alone.
StatusOr<int> ReadWhenMade(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const auto parameters, ReadParameters(L, 1, "read_when_made: parameters"));
  auto stored = std::make_shared<StoredValue>();
  const int count = static_cast<int>(lua_objlen(L, 2));
  for (int i = 1; i <= count; ++i) {
    const StackGuard guard(L);
    lua_rawgeti(L, 2, i);
    const int piece = lua_gettop(L);
    lua_getfield(L, piece, "from");
    const auto* from = ToObject<Weights>(L, -1);
    if (from == nullptr) return absl::InvalidArgumentError("read_when_made: pieces: expected open weights");
    ASSIGN_OR_RETURN(std::string name, FieldString(L, piece, "name", ""));
    stored->pieces.push_back({*from, std::move(name)});
  }
  stored->transposed = lua_toboolean(L, 3) != 0;
  ParameterData& p = *parameters[0];
  const auto read = [stored](const TensorType& whole, absl::Span<const int64_t> begin, const TensorView& part) {
    return ReadStored(*stored, whole, begin, part);
  };
  if (p.key.empty() || session.state().store.Find(p.key) == nullptr) {
    p.init.kind = "read";
    p.init.read = read;
    return 0;
  }
  ASSIGN_OR_RETURN(const Tensor value, NewTensor(session.allocator(), p.type));
  RETURN_IF_ERROR(read(p.type, Shape(p.type.shape.size(), 0), TensorView{p.type, value.data.get()}));
  RETURN_IF_ERROR(SetValue(session.state(), p, value));
  return 0;
}

void PushJson(lua_State* L, const Json& value) {
  lua_checkstack(L, 4);
  switch (value.type()) {
    case Json::value_t::boolean:
      lua_pushboolean(L, value.get<bool>() ? 1 : 0);
      return;
    case Json::value_t::string:
      PushString(L, value.get_ref<const std::string&>());
      return;
    case Json::value_t::object:
      lua_newtable(L);
      for (const auto& [key, item] : value.items()) {
        PushString(L, key);
        PushJson(L, item);
        lua_rawset(L, -3);
      }
      return;
    case Json::value_t::array: {
      lua_newtable(L);
      int n = 0;
      for (const Json& item : value) {
        PushJson(L, item);
        lua_rawseti(L, -2, ++n);
      }
      return;
    }
    default:
      if (value.is_number())
        lua_pushnumber(L, value.get<double>());
      else
        lua_pushnil(L);
  }
}

// core.read_json(path): the value of a file; null is nil
StatusOr<int> ReadJson(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "read_json: path"));
  const JsonLimits limits;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, limits.bytes));
  const auto value = ParseJson(text, limits);
  if (!value.ok()) return absl::DataLossError(absl::StrCat(path, ": ", value.status().message()));
  PushJson(L, *value);
  return 1;
}

}  // namespace

void OpenCheckpoints(lua_State* L) {
  NewKind<Weights>(L);
  lua_newtable(L);
  SetFunctions(L, {{"tensors", Entry<ListWeights>}, {"read", Entry<ReadWeight>}});
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  SetFunctions(L, {{"save_checkpoint", Entry<Save>},
                   {"load_checkpoint", Entry<Load>},
                   {"load_named", Entry<LoadNamed>},
                   {"seed_of", Entry<SeedOf>},
                   {"recorded_checkpoints", Entry<RecordedCheckpoints>},
                   {"compare_unsaved", Entry<CompareUnsavedValues>},
                   {"match_names", Entry<MatchNames>},
                   {"open_weights", Entry<OpenWeights>},
                   {"read_when_made", Entry<ReadWhenMade>},
                   {"read_json", Entry<ReadJson>}});
}

}  // namespace mslua
