// mslua top
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef TopVerb() {
  VerbDef verb;
  verb.name = "top";
  verb.usage = "[RUN]";
  verb.doc = "a running job's ranks, refreshed";
  verb.max_positional = 1;
  verb.examples = {"mslua top", "mslua top last", "mslua top runs/a"};
  return verb;
}

}  // namespace mslua::cli
