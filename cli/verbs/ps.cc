// mslua ps
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef PsVerb() {
  VerbDef verb;
  verb.name = "ps";
  verb.usage = "[flags]";
  verb.doc = "running jobs";
  verb.flags = {Json()};
  verb.examples = {"mslua ps", "mslua ps --json", "mslua ps --json | head -1"};
  return verb;
}

}  // namespace mslua::cli
