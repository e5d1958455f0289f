// mslua diag
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef DiagVerb() {
  VerbDef verb;
  verb.name = "diag";
  verb.usage = "[RUN] [flags]";
  verb.doc = "which rank hangs where";
  verb.max_positional = 1;
  verb.flags = {Json()};
  verb.examples = {"mslua diag", "mslua diag last", "mslua diag runs/a --json"};
  return verb;
}

}  // namespace mslua::cli
