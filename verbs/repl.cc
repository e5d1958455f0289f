// mslua repl
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "launch/job.h"
#include "launch/this_host.h"
#include "lua/open_session.h"
#include "repl/help.h"
#include "repl/loop.h"
#include "repl/rank_chunks.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_as_rank.h"
#include "verbs/support/run_recipe.h"

namespace mslua {
namespace {

// A recipe's parts are made when they are first named.
Status Open(Session& session, bool recipe) {
  const char* parts = recipe ? " local scope = require('mslua.verbs').scope()"
                               " setmetatable(_G, { __index = function(_, name) return scope[name] end })"
                             : "";
  return session.RunText(absl::StrCat("ms = require 'mslua' nn, ops = ms.nn, ms.ops", parts), "=mslua/repl");
}

// Of a loop that ran. Errors at a terminal's prompt were seen there.
int CodeOf(int errors, bool prompt) { return errors == 0 || (prompt && isatty(STDIN_FILENO)) ? kExitOk : 1; }

// Until the lines end, or .reload asks for a new session. Gives the exit status.
StatusOr<int> RunSession(const cli::CommandLine& command, bool* again) {
  ASSIGN_OR_RETURN(const auto session, OpenSession(OptionsOf(command)));
  const bool recipe = !command.positional.empty();
  if (const Status opened = Open(*session, recipe); !opened.ok()) return Report(opened);
  repl::Loop::Extension extension;
  extension.lines = command.Strings("e");
  const bool prompt = extension.lines.empty();
  *again = false;
  if (recipe) {
    extension.help = repl::RecipeHelp();
    extension.commands = {".reload"};
    extension.command = [again, prompt](absl::string_view line) -> Status {
      if (line != ".reload") return absl::NotFoundError(absl::StrCat("unknown command ", line, " (.help lists them)"));
      if (!prompt) return absl::FailedPreconditionError(".reload works only at the prompt, got -e .reload");
      *again = true;
      return absl::CancelledError("");
    };
  }
  return CodeOf(repl::Loop(*session, std::move(extension)).Run(), prompt);
}

int RunAlone(const cli::CommandLine& command) {
  bool again = false, failed = false;
  do {
    const auto code = RunSession(command, &again);
    if (!code.ok()) return Report(code.status());
    if (*code > 1) return *code;
    failed = failed || *code != 0;
  } while (again);
  return failed ? 1 : 0;
}

// Rank 0 of several: its prompt, or the lines that are given.
StatusOr<int> RunPrompt(Session& session, Membership& membership, bool recipe, std::vector<std::string> lines) {
  repl::RankChunks ranks(session, membership);
  RETURN_IF_ERROR(ranks.Meet());
  repl::Loop::Extension extension;
  extension.prompt = [&] { return absl::StrCat(membership.size(), " ranks"); };
  extension.begin = [&](const std::string& text) { return ranks.Begin(text); };
  extension.end = [&](const Status& own) { return ranks.End(own); };
  extension.command = [&](absl::string_view line) -> Status {
    if (line[0] != '@') return absl::NotFoundError(absl::StrCat("unknown command ", line, " (.help lists them)"));
    ASSIGN_OR_RETURN(const std::string answers, ranks.Ask(line));
    std::printf("%s\n", answers.c_str());
    return absl::OkStatus();
  };
  extension.help = (recipe ? repl::ScopeHelp() : "") + repl::RanksHelp();
  const bool prompt = lines.empty();
  extension.lines = std::move(lines);
  return CodeOf(repl::Loop(session, std::move(extension)).Run(), prompt);
}

StatusOr<int> RunTogether(Session& session, bool recipe, const std::vector<std::string>& lines) {
  RETURN_IF_ERROR(Open(session, recipe));
  Membership* const membership = session.job->membership();
  if (membership == nullptr) {
    return absl::FailedPreconditionError(
        "repl: the ranks of several hosts have no control connections (MSLUA_PLAINTEXT=1 allows them on a trusted "
        "network)");
  }
  if (session.job->rank() == 0) return RunPrompt(session, *membership, recipe, lines);
  RETURN_IF_ERROR(repl::ServeChunks(session, *membership));
  return kExitOk;
}

int RunRepl(const cli::CommandLine& command) {
  const bool recipe = !command.positional.empty();
  if (!recipe && (command.Given("preset") || !command.overrides.empty()))
    return Report(absl::InvalidArgumentError("repl: --preset and key=value are for a recipe: mslua repl RECIPE"));
  const auto identity = WhoAmI(OwnEnvironment(), ReadTextFile);
  if (!identity.ok()) return Report(identity.status(), kExitEnvironment);
  const bool several = identity->size > 1 || identity->scheduler || (command.Given("n") && command.Int("n") > 1);
  if (!several) {
    ShareCores(*identity, command.words);
    return RunAlone(command);
  }
  return RunAsRank(
      command, OptionsOf(command), Joins::kAtOnce,
      [recipe, lines = command.Strings("e")](Session& session) { return RunTogether(session, recipe, lines); });
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(repl) {
  VerbDef verb;
  verb.name = "repl";
  verb.usage = "[RECIPE] [key=value ...] [flags]";
  verb.doc = "interactive Lua, eager tensors, a recipe's parts in scope";
  verb.max_positional = 1;
  verb.overrides = true;
  verb.flags = {Commands(), Ranks(),           Device(),      Preset(),          Seed(), Backend(), Interface(),
                Tls(),      InsecureNetwork(), HangTimeout(), HeartbeatTimeout()};
  verb.examples = {"mslua repl", "mslua repl recipes/quickstart.lua -n 2", "mslua repl -e 'ms.ones{2,2}*3'"};
  verb.place = 220;
  verb.run = RunRepl;
  return verb;
}

}  // namespace mslua::cli
