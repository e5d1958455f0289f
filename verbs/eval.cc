// mslua eval
#include "cli/common_flags.h"
#include "verbs/define.h"
#include "verbs/support/run_recipe.h"

DEFINE_bool(partial, false, "load what fits of the checkpoint; the rest keeps its initial values");

namespace mslua::cli {

MSLUA_VERB(eval) {
  VerbDef verb;
  verb.name = "eval";
  verb.usage = "RECIPE [key=value ...] [flags]";
  verb.doc = "metrics of a recipe on its eval_dataset";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = RecipeFlags({Checkpoint(), Switch(FLAGS_partial), Json()});
  verb.examples = {"mslua eval recipes/lenet_mnist.lua",
                   "mslua eval recipes/lenet_mnist.lua --ckpt last data_path=/data/mnist",
                   "mslua eval recipes/resnet18_cifar10.lua -n 2 --ckpt runs/a/ckpt --json"};
  verb.place = 105;
  verb.run = RunRecipe;
  return verb;
}

}  // namespace mslua::cli
