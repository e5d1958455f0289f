// mslua train
#include "cli/common_flags.h"
#include "verbs/define.h"
#include "verbs/support/run_recipe.h"

DEFINE_string(out, "", "run folder: logs, metrics, checkpoints (default runs/<id>)");
DEFINE_string(resume, "", "resume from a checkpoint");
DEFINE_string(init_from, "", "start with a checkpoint's weights, where the network has them");
DEFINE_string(progress, "auto", "the live status line; auto: on a terminal");
DEFINE_string(log_every, "1", "print the loss every N steps or once an epoch");
DEFINE_int64(fast_dev_run, 0, "N steps of training and of eval, nothing saved");
DEFINE_int64(overfit, 0, "train on the first N batches only");
DEFINE_string(profile, "", "trace N steps from step S, for Perfetto");
DEFINE_string(recover, "off", "start again when a rank has died");
DEFINE_int64(max_restarts, -1, "restarts in all; without it no limit");
DEFINE_bool(attach, true, "open an endpoint for attach");

namespace mslua::cli {

MSLUA_VERB(train) {
  VerbDef verb;
  verb.name = "train";
  verb.usage = "RECIPE [key=value ...] [flags]";
  verb.doc = "train a recipe; losses to stdout, the rest to stderr";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags =
      RecipeFlags({Seed(), Text(FLAGS_out, "DIR"), Text(FLAGS_resume, "last|best|PATH").Bare("last"),
                   Text(FLAGS_init_from, "last|best|PATH"), IntegerOrWord(FLAGS_log_every, "N|epoch"),
                   OneOf(FLAGS_progress, "auto|on|off"), MaxSteps(), Integer(FLAGS_fast_dev_run, "N", 1).Bare("1"),
                   Integer(FLAGS_overfit, "N", 1), Text(FLAGS_profile, "S:N"),
                   OneOf(FLAGS_recover, "off|memory|disk").Bare("memory"), Integer(FLAGS_max_restarts, "N", 0),
                   Elastic(), Switch(FLAGS_attach).Help("open no endpoint for attach")});
  verb.examples = {"mslua train recipes/quickstart.lua -n 2 --recover",
                   "mslua train recipes/lenet_mnist.lua data_path=/data/mnist epochs=2",
                   "mslua train recipes/resnet18_cifar10.lua --out runs/a --resume train.epochs=20"};
  verb.place = 100;
  verb.run = RunRecipe;
  return verb;
}

}  // namespace mslua::cli
