// mslua completion
#include "cli/completion.h"

#include <cstdio>

#include "verbs/define.h"
#include "verbs/support/report.h"

namespace mslua {
namespace {

int Completion(const cli::CommandLine& command) {
  const auto script = cli::CompletionScript(command.positional[0]);
  if (!script.ok()) return Report(script.status());
  std::fputs(script->c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(completion) {
  VerbDef verb;
  verb.name = "completion";
  verb.usage = "SHELL";
  verb.doc = "the completion script of a shell";
  verb.actions = {{"bash", "", 0, 0}, {"zsh", "", 0, 0}, {"fish", "", 0, 0}};
  verb.examples = {"mslua completion bash > ~/.local/share/bash-completion/completions/mslua",
                   "mslua completion zsh > ~/.zsh/completions/_mslua",
                   "mslua completion fish > ~/.config/fish/completions/mslua.fish"};
  verb.place = 710;
  verb.run = Completion;
  return verb;
}

}  // namespace mslua::cli
