// mslua repl
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef ReplVerb() {
  VerbDef verb;
  verb.name = "repl";
  verb.usage = "[RECIPE] [key=value ...] [flags]";
  verb.doc = "interactive Lua, eager tensors, a recipe's parts in scope";
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {Ranks(), Device(), Preset(), Seed(), Backend(), Interface(), HangTimeout(), HeartbeatTimeout()};
  verb.examples = {"mslua repl", "mslua repl recipes/quickstart.lua -n 2", "echo 'ms.ones{2,2} * 3' | mslua repl"};
  return verb;
}

}  // namespace mslua::cli
