#include "lua/core_module.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "core/base/exit_code.h"
#include "core/base/parallel_for.h"
#include "core/base/print_options.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "lua/checkpoint_lua.h"
#include "lua/custom_gradient_lua.h"
#include "lua/dataset_lua.h"
#include "lua/embedded.h"
#include "lua/files_lua.h"
#include "lua/graph_lua.h"
#include "lua/image_lua.h"
#include "lua/object.h"
#include "lua/onnx_lua.h"
#include "lua/op_call.h"
#include "lua/op_module.h"
#include "lua/optimizer_lua.h"
#include "lua/options.h"
#include "lua/parameter_kind.h"
#include "lua/rank_lua.h"
#include "lua/schedule_lua.h"
#include "lua/stop_together.h"
#include "lua/summary_lua.h"
#include "lua/tensor_kind.h"
#include "lua/tensor_lua.h"
#include "lua/tensor_methods.h"
#include "lua/tokenizer_lua.h"
#include "lua/trace_kind.h"
#include "lua/trace_lua.h"
#include "lua/trainer_lua.h"
#include "lua/whole_value.h"

namespace mslua {
namespace {

StatusOr<int> Kind(lua_State* L, Session&) {
  if (lua_type(L, 1) != LUA_TUSERDATA || !luaL_getmetafield(L, 1, "__name")) lua_pushnil(L);
  return 1;
}

// core.set_seed(seed[, of_user])
StatusOr<int> SetSeed(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t seed, ReadInt(L, 1, "set_seed"));
  if (seed < 0) return absl::InvalidArgumentError(absl::StrCat("set_seed: expected a seed of at least 0, got ", seed));
  // A recipe's own seeds do not count beside --seed: those of a sweep would be one.
  const SessionOptions& options = session.options();
  const bool of_recipe = lua_toboolean(L, 2) && options.verb != "run" && options.verb != "repl";
  if (!options.has_seed || !of_recipe) session.state().seed = static_cast<uint64_t>(seed);
  session.random_tensors = 0;
  session.gradient_calls = 0;
  return 0;
}

// core.set_denormals(keep)
StatusOr<int> KeepDenormals(lua_State* L, Session&) {
  SetDenormals(lua_toboolean(L, 1) != 0);
  return 0;
}

// core.forget_programs()
StatusOr<int> ForgetPrograms(lua_State*, Session& session) {
  session.eager_programs.clear();
  return 0;
}

// core.print_options(): the settings that hold, by name
StatusOr<int> PrintSettings(lua_State* L, Session&) {
  const PrintOptions options = GetPrintOptions();
  lua_createtable(L, 0, 3);
  const std::pair<const char*, int64_t> fields[] = {
      {"precision", options.precision}, {"threshold", options.threshold}, {"edgeitems", options.edgeitems}};
  for (const auto& [name, value] : fields) {
    lua_pushnumber(L, static_cast<double>(value));
    lua_setfield(L, -2, name);
  }
  return 1;
}

// core.set_print_options(precision, threshold, edgeitems, linewidth, sci_mode); nil: chosen when a tensor is written.
StatusOr<int> SetPrintSettings(lua_State* L, Session&) {
  PrintOptions options;
  ASSIGN_OR_RETURN(const int64_t precision, ReadInt(L, 1, "precision"));
  ASSIGN_OR_RETURN(options.threshold, ReadInt(L, 2, "threshold"));
  ASSIGN_OR_RETURN(const int64_t edgeitems, ReadInt(L, 3, "edgeitems"));
  options.precision = static_cast<int>(precision);
  options.edgeitems = static_cast<int>(std::min<int64_t>(edgeitems, 1 << 30));
  if (!lua_isnil(L, 4)) {
    ASSIGN_OR_RETURN(const int64_t linewidth, ReadInt(L, 4, "linewidth"));
    options.linewidth = static_cast<int>(std::min<int64_t>(linewidth, 1 << 30));
  }
  if (!lua_isnil(L, 5)) options.sci_mode = lua_toboolean(L, 5) != 0;
  SetPrintOptions(options);
  return 0;
}

StatusOr<int> GetSeed(lua_State* L, Session& session) {
  lua_pushnumber(L, static_cast<double>(session.state().seed));
  return 1;
}

// Formats by string.format, whose own mistakes are the caller's.
StatusOr<int> Fail(lua_State* L, Session& session) {
  const int n = lua_gettop(L);
  if (n == 0) return absl::InvalidArgumentError("fail: a message is needed");
  if (n > 1) {
    lua_getglobal(L, "string");
    lua_getfield(L, -1, "format");
    lua_insert(L, 1);
    lua_settop(L, n + 1);
    RETURN_IF_ERROR(session.Call(n, 1));
  }
  ASSIGN_OR_RETURN(const std::string message, ReadString(L, -1, "fail: message"));
  return absl::InvalidArgumentError(message);
}

// As Fail, with the exit code of a NaN.
StatusOr<int> FailDiverged(lua_State* L, Session& session) { return WithExitCode(Fail(L, session), kExitDiverged); }

StatusOr<int> Where(lua_State* L, Session& session) {
  const auto where = session.Where();
  if (where->file.empty())
    lua_pushnil(L);
  else
    PushString(L, absl::StrCat(where->file, ":", where->line));
  return 1;
}

// core.at("recipe.lua:12"): while a graph is traced, errors name this line until another line of the user runs.
StatusOr<int> At(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string place, ReadString(L, 1, "at: place"));
  const size_t colon = place.rfind(':');
  int line = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(place.substr(colon + 1), &line))
    return absl::InvalidArgumentError(absl::StrCat("at: expected FILE:LINE, got ", place));
  session.SetLine(place.substr(0, colon), line);
  return 0;
}

StatusOr<int> SuggestName(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string word, ReadString(L, 1, "did_you_mean: word"));
  if (lua_type(L, 2) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("did_you_mean: expected a list of names, got ", Describe(L, 2)));
  std::vector<std::string> known;
  const int n = static_cast<int>(lua_objlen(L, 2));
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, 2, i);
    if (lua_type(L, -1) == LUA_TSTRING) known.emplace_back(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  PushString(L, DidYouMean(word, known));
  return 1;
}

// core.library_recipe(name): its text, or nil.
StatusOr<int> LibraryRecipe(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "library_recipe: name"));
  const EmbeddedChunk* chunk = FindRecipe(name);
  if (chunk == nullptr)
    lua_pushnil(L);
  else
    lua_pushlstring(L, chunk->source.data(), chunk->source.size());
  return 1;
}

// core.library_text(path): the source of a file of the library, "mslua/nn/cells/dense.lua"; nil: there is none.
StatusOr<int> LibraryText(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 1, "library_text: path"));
  const auto chunks = EmbeddedChunks();
  const auto found = std::find_if(chunks.begin(), chunks.end(), [&](const auto& chunk) { return path == chunk.path; });
  if (found == chunks.end())
    lua_pushnil(L);
  else
    lua_pushlstring(L, found->source.data(), found->source.size());
  return 1;
}

void PushStrings(lua_State* L, const std::vector<std::string>& list) {
  lua_newtable(L);
  for (size_t i = 0; i < list.size(); ++i) {
    PushString(L, list[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

// core.library_modules(prefix): the names of the library's modules that begin so, in order.
StatusOr<int> LibraryModules(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string prefix, ReadString(L, 1, "library_modules: prefix"));
  std::vector<std::string> names;
  for (const EmbeddedChunk& chunk : EmbeddedChunks()) {
    if (absl::StartsWith(chunk.module, prefix)) names.emplace_back(chunk.module);
  }
  std::sort(names.begin(), names.end());
  PushStrings(L, names);
  return 1;
}

// core.environment(prefix): the names of the variables that begin so, in order.
StatusOr<int> VariableNames(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string prefix, ReadString(L, 1, "environment: prefix"));
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const absl::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals != absl::string_view::npos && absl::StartsWith(text, prefix)) names.emplace_back(text.substr(0, equals));
  }
  std::sort(names.begin(), names.end());
  PushStrings(L, names);
  return 1;
}

StatusOr<int> StopGradient(lua_State* L, Session& session) { return Apply(L, session, "stop_gradient", {1}, {}); }

StatusOr<int> Clock(lua_State* L, Session&) {
  lua_pushnumber(L, std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  return 1;
}

void PushOptions(lua_State* L, const Session& session) {
  const SessionOptions& options = session.options();
  const auto set = [L](const char* key, const std::string& text) {
    if (text.empty()) return;
    PushString(L, text);
    lua_setfield(L, -2, key);
  };
  lua_newtable(L);
  set("verb", options.verb);
  set("file", options.file);
  set("preset", options.preset);
  set("device", options.device);
  if (options.device != "cpu") set("device_given", options.device);
  // The ranks may have met before, in other numbers than they were started with.
  lua_pushnumber(L, session.state().rank);
  lua_setfield(L, -2, "rank");
  lua_pushnumber(L, session.state().ranks);
  lua_setfield(L, -2, "ranks");
  if (options.has_seed) {
    lua_pushnumber(L, static_cast<double>(options.seed));
    lua_setfield(L, -2, "seed");
  }
  for (const auto& [key, value] : options.flags) {
    if (const bool* b = std::get_if<bool>(&value))
      lua_pushboolean(L, *b);
    else if (const double* d = std::get_if<double>(&value))
      lua_pushnumber(L, *d);
    else
      PushString(L, std::get<std::string>(value));
    lua_setfield(L, -2, key.c_str());
  }
  lua_newtable(L);
  for (size_t i = 0; i < options.args.size(); ++i) {
    PushString(L, options.args[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "args");
  lua_newtable(L);
  for (size_t i = 0; i < options.overrides.size(); ++i) {
    lua_createtable(L, 2, 0);
    PushString(L, options.overrides[i].first);
    lua_rawseti(L, -2, 1);
    PushString(L, options.overrides[i].second);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "overrides");
}

}  // namespace

const char* LuaVersion() { return LUAJIT_VERSION; }

int OpenCoreModule(lua_State* L) {
  lua_newtable(L);
  OpenTensors(L);
  OpenTraces(L);
  OpenParameters(L);
  OpenOperators(L);
  OpenTensorMethods(L);
  OpenGraphs(L);
  OpenGradients(L);
  OpenCustomGradients(L);
  OpenTraining(L);
  OpenOnnx(L);
  OpenImages(L);
  OpenFiles(L);
  OpenSummaries(L);
  OpenOptimizers(L);
  OpenSchedules(L);
  OpenDatasets(L);
  OpenTokenizers(L);
  OpenCheckpoints(L);
  OpenTrainers(L);
  OpenWholeValues(L);
  OpenSteppers(L);
  OpenRanks(L);
  OpenStopTogether(L);
  SetFunctions(L, {{"kind", Entry<Kind>},
                   {"set_seed", Entry<SetSeed, 2>},
                   {"set_denormals", Entry<KeepDenormals>},
                   {"forget_programs", Entry<ForgetPrograms>},
                   {"seed", Entry<GetSeed>},
                   {"print_options", Entry<PrintSettings>},
                   {"set_print_options", Entry<SetPrintSettings, 5>},
                   {"fail", Entry<Fail>},
                   {"fail_diverged", Entry<FailDiverged>},
                   {"where", Entry<Where>},
                   {"at", Entry<At>},
                   {"did_you_mean", Entry<SuggestName>},
                   {"clock", Entry<Clock>},
                   {"environment", Entry<VariableNames>},
                   {"library_recipe", Entry<LibraryRecipe>},
                   {"library_text", Entry<LibraryText>},
                   {"library_modules", Entry<LibraryModules>},
                   {"stop_gradient", Entry<StopGradient, 1>}});
  PushOptions(L, Session::Of(L));
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, kOptionsKey);
  lua_setfield(L, -2, "options");
  lua_pushstring(L, kVersion);
  lua_setfield(L, -2, "version");
  return 1;
}

}  // namespace mslua
