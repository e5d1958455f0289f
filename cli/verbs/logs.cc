// mslua logs
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

DEFINE_bool(f, false, "keep printing as they grow");

namespace mslua::cli {

VerbDef LogsVerb() {
  VerbDef verb;
  verb.name = "logs";
  verb.usage = "[RUN] [flags]";
  verb.doc = "the logs of a job";
  verb.max_positional = 1;
  verb.flags = {Switch(FLAGS_f), Rank().Help("of this rank")};
  verb.examples = {"mslua logs", "mslua logs last -f", "mslua logs runs/a --rank 0"};
  return verb;
}

}  // namespace mslua::cli
