// mslua ckpt
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef CkptVerb() {
  VerbDef verb;
  verb.name = "ckpt";
  verb.usage = "ACTION PATH [argument ...] [flags]";
  verb.doc = "checkpoints: show, verify, merge, reshard";
  verb.flags = {Json().Of({"ls", "show"})};
  verb.actions = {{"ls", "[DIR|last]", 0, 1},
                  {"show", "CKPT|last|best", 1, 1},
                  {"verify", "CKPT", 1, 1},
                  {"merge", "CKPT OUT.safetensors", 2, 2},
                  {"reshard", "CKPT OUT RANKS", 3, 3},
                  {"convert", "CKPT OUT", 2, 2, false}};
  verb.examples = {"mslua ckpt ls runs/a", "mslua ckpt show last", "mslua ckpt verify runs/a/ckpt"};
  return verb;
}

}  // namespace mslua::cli
