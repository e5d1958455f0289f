// mslua graph
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

DEFINE_string(format, "text", "how to print it");
DEFINE_string(pass, "", "the graph after this pass, instead of the final one");

namespace mslua::cli {

VerbDef GraphVerb() {
  VerbDef verb;
  verb.name = "graph";
  verb.usage = "RECIPE|FILE.ir [key=value ...] [flags]";
  verb.doc = "the compiled graph of a recipe's step";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {OneOf(FLAGS_format, "text|dot|json"), Preset(), Text(FLAGS_pass, "NAME"), RanksWithoutThem(),
                Rank().Help("print the program of rank R")};
  verb.examples = {"mslua graph recipes/quickstart.lua --format dot",
                   "mslua graph recipes/quickstart.lua -n 8 --rank 3", "mslua graph rank_0/01_traced.ir"};
  return verb;
}

}  // namespace mslua::cli
