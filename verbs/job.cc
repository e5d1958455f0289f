// mslua job
#include "cli/common_flags.h"
#include "verbs/define.h"

namespace mslua::cli {

MSLUA_VERB(job) {
  VerbDef verb;
  verb.name = "job";
  verb.usage = "ACTION RECIPE [key=value ...] [flags]";
  verb.doc = "batch files of cluster schedulers";
  verb.overrides = true;
  verb.flags = {Ranks().Help("ranks")};
  verb.actions = {{"slurm", "RECIPE", 1, 1}, {"k8s", "RECIPE", 1, 1}};
  verb.examples = {"mslua job slurm recipes/quickstart.lua -n 8", "mslua job k8s recipes/quickstart.lua -n 4",
                   "mslua job slurm recipes/quickstart.lua -n 2 epochs=1 > job.sbatch"};
  verb.built = false;
  verb.place = 240;
  return verb;
}

}  // namespace mslua::cli
