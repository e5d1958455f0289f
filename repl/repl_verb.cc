// `mslua repl [RECIPE]`: Lua with eager tensors and a recipe's parts. Works without a terminal.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lua/verbs.h"
#include "repl/loop.h"
#include "repl/verbs.h"

namespace mslua {

namespace {

// Until the lines end, or .reload asks for a new session. Gives the exit status.
StatusOr<int> RunSession(const cli::CommandLine& command, bool* again) {
  ASSIGN_OR_RETURN(const auto session, Session::Create(OptionsOf(command)));
  // A recipe's parts are made when they are first named.
  const bool recipe = !command.positional.empty();
  const char* parts = recipe ? " local scope = require('mslua.verbs').scope()"
                               " setmetatable(_G, { __index = function(_, name) return scope[name] end })"
                             : "";
  const Status opened =
      session->RunText(absl::StrCat("ms = require 'mslua' nn, ops = ms.nn, ms.ops", parts), "=mslua/repl");
  if (!opened.ok()) return Report(opened, session->exit_code);
  repl::Loop::Extension extension;
  *again = false;
  if (recipe) {
    extension.help =
        "in scope: recipe, net, dataset, eval_dataset, loss, model, and m: m:step() trains by hand\n"
        "  .reload      reads the recipe again; names and parameters are forgotten\n";
    extension.commands = {".reload"};
    extension.command = [again](absl::string_view line) -> Status {
      *again = line == ".reload";
      if (*again) return absl::CancelledError("");
      return absl::NotFoundError(absl::StrCat("unknown command ", line, " (.help lists them)"));
    };
  }
  return repl::Loop(*session, std::move(extension)).Run() == 0 || isatty(STDIN_FILENO) ? 0 : 1;
}

}  // namespace

int RunRepl(const cli::CommandLine& command) {
  if (command.positional.empty() && (command.Given("preset") || !command.overrides.empty()))
    return Report(absl::InvalidArgumentError("repl: --preset and key=value are for a recipe: mslua repl RECIPE"));
  bool again = false, failed = false;
  do {
    const auto code = RunSession(command, &again);
    if (!code.ok()) return Report(code.status());
    if (*code > 1) return *code;
    failed = failed || *code != 0;
  } while (again);
  return failed ? 1 : 0;
}

}  // namespace mslua
