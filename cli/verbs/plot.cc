// mslua plot
#include "cli/flags.h"
#include "cli/verbs/all.h"

DEFINE_string(keys, "loss", "which metrics");
DEFINE_string(svg, "", "write an SVG");

namespace mslua::cli {

VerbDef PlotVerb() {
  VerbDef verb;
  verb.name = "plot";
  verb.usage = "RUN ... [flags]";
  verb.doc = "curves of runs, in the terminal or as SVG";
  verb.min_positional = 1;
  verb.max_positional = kUnlimited;
  verb.flags = {Text(FLAGS_keys, "K,..."), Text(FLAGS_svg, "FILE")};
  verb.examples = {"mslua plot last", "mslua plot runs/a runs/b", "mslua plot last --keys loss,lr --svg loss.svg"};
  return verb;
}

}  // namespace mslua::cli
