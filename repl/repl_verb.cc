// `mslua repl [RECIPE]`: Lua with eager tensors and a recipe's parts. Works without a terminal.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "lua/verbs.h"
#include "repl/loop.h"
#include "repl/verbs.h"

namespace mslua {

int RunRepl(const cli::CommandLine& command) {
  auto session = Session::Create(OptionsOf(command));
  if (!session.ok()) return Report(session.status());
  // A recipe's parts are made when they are first named.
  const char* parts = command.positional.empty()
                          ? ""
                          : " local scope = require('mslua.verbs').scope()"
                            " setmetatable(_G, { __index = function(_, name) return scope[name] end })";
  const Status opened =
      (*session)->RunText(absl::StrCat("ms = require 'mslua' nn, ops = ms.nn, ms.ops", parts), "=mslua/repl");
  if (!opened.ok()) return Report(opened, (*session)->exit_code);
  repl::Loop::Extension extension;
  if (!command.positional.empty())
    extension.help = "in scope: recipe, net, dataset, eval_dataset, loss, model, and m: m:step() trains by hand\n";
  return repl::Loop(**session, std::move(extension)).Run() == 0 || isatty(STDIN_FILENO) ? 0 : 1;
}

}  // namespace mslua
