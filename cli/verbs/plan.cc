// mslua plan
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

DEFINE_string(explain, "", "predicted steps with other strategies of OP");
DEFINE_string(cluster, "", "how fast the devices and their links are, as JSON");

namespace mslua::cli {

VerbDef PlanVerb() {
  VerbDef verb;
  verb.name = "plan";
  verb.usage = "RECIPE [key=value ...] [flags]";
  verb.doc = "compile for N ranks without having them";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {RanksWithoutThem(), Text(FLAGS_explain, "OP"), Text(FLAGS_cluster, "FILE"), Preset(), Json()};
  verb.examples = {"mslua plan recipes/quickstart.lua -n 8", "mslua plan recipes/quickstart.lua -n 8 --explain MatMul",
                   "mslua plan recipes/quickstart.lua -n 64 --cluster cluster.json --json"};
  return verb;
}

}  // namespace mslua::cli
