// mslua completion
#include "cli/verbs/all.h"

namespace mslua::cli {

VerbDef CompletionVerb() {
  VerbDef verb;
  verb.name = "completion";
  verb.usage = "SHELL";
  verb.doc = "the completion script of a shell";
  verb.actions = {{"bash", "", 0, 0}, {"zsh", "", 0, 0}, {"fish", "", 0, 0}};
  verb.examples = {"mslua completion bash > ~/.local/share/bash-completion/completions/mslua",
                   "mslua completion zsh > ~/.zsh/completions/_mslua",
                   "mslua completion fish > ~/.config/fish/completions/mslua.fish"};
  return verb;
}

}  // namespace mslua::cli
