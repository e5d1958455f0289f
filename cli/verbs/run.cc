// mslua run
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef RunVerb() {
  VerbDef verb;
  verb.name = "run";
  verb.usage = "SCRIPT [argument ...] [flags]";
  verb.doc = "run an imperative Lua script";
  verb.min_positional = 1;
  verb.max_positional = kUnlimited;
  verb.overrides = true;
  verb.flags = {Ranks(),     Device(),      Preset(),           Seed(),     MaxSteps(), LogRanks(),
                Interface(), HangTimeout(), HeartbeatTimeout(), Traceback()};
  verb.examples = {"mslua run script.lua lr=0.1", "mslua run recipes/examples/all_gather.lua -n 4",
                   "mslua run script.lua -- -5 input.txt"};
  return verb;
}

}  // namespace mslua::cli
