// mslua plot
#include "cli/flags.h"
#include "cli/verbs/all.h"

DEFINE_string(keys, "loss", "metrics, each in a panel of its own");
DEFINE_string(log, "", "logarithmic axes");
DEFINE_string(svg, "", "write an SVG");
DEFINE_string(x, "step", "what the x axis is: a metric such as lr");

namespace mslua::cli {

VerbDef PlotVerb() {
  VerbDef verb;
  verb.name = "plot";
  verb.usage = "RUN ... [flags]";
  verb.doc = "curves of runs, in the terminal or as SVG";
  verb.min_positional = 1;
  verb.max_positional = kUnlimited;
  verb.flags = {Text(FLAGS_keys, "K,..."), Text(FLAGS_x, "K"), OneOf(FLAGS_log, "y|x|xy").Bare("y"),
                Text(FLAGS_svg, "FILE")};
  verb.examples = {"mslua plot last --log", "mslua plot runs/a runs/b --keys loss,eval_loss",
                   "mslua plot last -x lr --log=x --svg loss.svg"};
  return verb;
}

}  // namespace mslua::cli
