// mslua verify
#include "cli/common_flags.h"
#include "verbs/define.h"
#include "verbs/support/run_recipe.h"

namespace mslua::cli {

MSLUA_VERB(verify) {
  VerbDef verb;
  verb.name = "verify";
  verb.usage = "RECIPE [key=value ...] [flags]";
  verb.doc = "train a recipe and check its expect";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {Ranks(), Device(), Preset(), Backend(), Interface(), Tls(), InsecureNetwork(), Json(), Traceback()};
  verb.examples = {"mslua verify recipes/quickstart.lua", "mslua verify recipes/lenet_mnist.lua --preset smoke",
                   "mslua verify recipes/quickstart.lua --json"};
  verb.place = 140;
  verb.run = RunRecipe;
  return verb;
}

}  // namespace mslua::cli
