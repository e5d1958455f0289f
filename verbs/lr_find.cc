// mslua lr-find
#include <utility>

#include "cli/common_flags.h"
#include "lua/open_session.h"
#include "lua/recipe_files.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_recipe.h"

DEFINE_int64(find_steps, 200, "training steps, from a learning rate of 1e-6 to one of 10");

namespace mslua {
namespace {

StatusOr<int> Find(const cli::CommandLine& command) {
  RETURN_IF_ERROR(CheckRecipe(command.positional[0]));
  SessionOptions options = OptionsOf(command);
  options.flags.emplace_back("steps", static_cast<double>(command.Int("steps")));
  ASSIGN_OR_RETURN(const auto session, OpenSession(std::move(options)));
  RETURN_IF_ERROR(CallVerb(*session, "lr_find"));
  return static_cast<int>(lua_tonumber(session->lua(), -1));
}

int RunFind(const cli::CommandLine& command) {
  const auto code = Find(command);
  return code.ok() ? *code : Report(code.status());
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(lr_find) {
  VerbDef verb;
  verb.name = "lr-find";
  verb.usage = "RECIPE [key=value ...] [flags]";
  verb.doc = "the learning rates at which the loss falls, from a short training";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {Integer(FLAGS_find_steps, "N", 10).As("steps"), Device(), Preset(), Seed(), Json(), Traceback()};
  verb.examples = {"mslua lr-find recipes/quickstart.lua", "mslua lr-find recipes/quickstart.lua --steps 40 --json",
                   "mslua lr-find recipes/examples/circle.lua"};
  verb.place = 145;
  verb.run = RunFind;
  return verb;
}

}  // namespace mslua::cli
