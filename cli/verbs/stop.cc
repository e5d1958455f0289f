// mslua stop
#include "cli/flags.h"
#include "cli/verbs/all.h"

DEFINE_bool(now, false, "without a checkpoint");

namespace mslua::cli {

VerbDef StopVerb() {
  VerbDef verb;
  verb.name = "stop";
  verb.usage = "[RUN] [flags]";
  verb.doc = "stop a running job after a checkpoint";
  verb.max_positional = 1;
  verb.flags = {Switch(FLAGS_now)};
  verb.examples = {"mslua stop", "mslua stop last", "mslua stop runs/a --now"};
  return verb;
}

}  // namespace mslua::cli
