// mslua run
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/text.h"
#include "lua/object.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/run_as_rank.h"
#include "verbs/support/run_recipe.h"

namespace mslua {
namespace {

int RunScript(const cli::CommandLine& command) {
  return RunAsRank(command, OptionsOf(command), Joins::kWhenAsked, [](Session& session) -> StatusOr<int> {
    RETURN_IF_ERROR(CheckLuaFile(session.options().file));
    lua_State* L = session.lua();
    lua_settop(L, 0);
    RETURN_IF_ERROR(session.RunText("return require('mslua.globals').check_reads", "=mslua/verb"));
    PushString(L, session.options().file);
    RETURN_IF_ERROR(session.Call(1, 0));
    RETURN_IF_ERROR(session.RunFile(session.options().file));
    lua_settop(L, 1);
    RETURN_IF_ERROR(session.RunText("return require('mslua.verbs').after_script", "=mslua/verb"));
    lua_insert(L, 1);
    RETURN_IF_ERROR(session.Call(1, 0));
    return kExitOk;
  });
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(run) {
  VerbDef verb;
  verb.name = "run";
  verb.usage = "SCRIPT [argument ...] [flags]";
  verb.doc = "run an imperative Lua script";
  verb.min_positional = 1;
  verb.max_positional = kUnlimited;
  verb.overrides = true;
  verb.flags = {Ranks(),     Device(), Preset(),          Seed(),        MaxSteps(),         LogRanks(),
                Interface(), Tls(),    InsecureNetwork(), HangTimeout(), HeartbeatTimeout(), Traceback()};
  verb.examples = {"mslua run script.lua lr=0.1", "mslua run recipes/examples/all_gather.lua -n 4",
                   "mslua run script.lua -- -5 input.txt"};
  verb.place = 215;
  verb.run = RunScript;
  return verb;
}

}  // namespace mslua::cli
