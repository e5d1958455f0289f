// mslua prof
#include "cli/common_flags.h"
#include "verbs/define.h"
#include "verbs/support/run_recipe.h"

DEFINE_int64(steps, 10, "steps to measure");
DEFINE_bool(steps_only, false, "time whole steps alone");
DEFINE_string(trace, "", "write a Chrome trace of one step");

namespace mslua::cli {

MSLUA_VERB(prof) {
  VerbDef verb;
  verb.name = "prof";
  verb.usage = "RECIPE [key=value ...] [flags]";
  verb.doc = "time of a training step by operator, beside the machine's limits";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {
      Integer(FLAGS_steps, "N", 1), Switch(FLAGS_steps_only), Text(FLAGS_trace, "FILE"), Device(), Preset(), Json()};
  verb.examples = {"mslua prof recipes/quickstart.lua", "mslua prof recipes/quickstart.lua --trace step.json",
                   "mslua prof recipes/lenet_mnist.lua --steps 50 --json"};
  verb.place = 500;
  verb.run = RunRecipe;
  return verb;
}

}  // namespace mslua::cli
