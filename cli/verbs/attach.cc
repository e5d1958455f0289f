// mslua attach
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

DEFINE_bool(rw, false, "take the writer lock, to steer");
DEFINE_string(e, "", "run CMD and leave; may be repeated");

namespace mslua::cli {

VerbDef AttachVerb() {
  VerbDef verb;
  verb.name = "attach";
  verb.usage = "[RUN] [flags]";
  verb.doc = "look into a running job: its folder, id, or last";
  verb.max_positional = 1;
  verb.flags = {Switch(FLAGS_rw), Text(FLAGS_e, "CMD").Repeated(), Json()};
  verb.examples = {"mslua attach", "mslua attach last -e .ranks", "mslua attach runs/a --rw -e .pause -e .save"};
  return verb;
}

}  // namespace mslua::cli
