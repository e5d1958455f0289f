#include "verbs/support/run_recipe.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/text.h"
#include "lua/object.h"
#include "lua/recipe_files.h"
#include "verbs/support/run_as_rank.h"

namespace mslua {

SessionOptions OptionsOf(const cli::CommandLine& command) {
  SessionOptions options;
  options.verb = command.verb;
  if (!command.positional.empty()) {
    options.file = command.positional[0];
    options.args.assign(command.positional.begin() + 1, command.positional.end());
  }
  options.overrides = command.overrides;
  options.preset = command.String("preset");
  // A plan is made for a device that need not be here.
  if (command.Given("device") && command.verb == "plan") {
    if (command.String("device") != "cpu") options.flags.emplace_back("plan_device", command.String("device"));
  } else if (command.Given("device")) {
    options.device = command.String("device");
  }
  if (command.Given("seed")) {
    options.has_seed = true;
    options.seed = static_cast<uint64_t>(command.Int("seed"));
  }
  const auto number = [&](const char* flag, const char* option) {
    if (command.Given(flag) && command.Int(flag) > 0)
      options.flags.emplace_back(option, static_cast<double>(command.Int(flag)));
  };
  number("max-steps", "max_steps");
  number("fast-dev-run", "fast_dev_run");
  number("overfit", "overfit");
  number("steps", "steps");
  number("log-every", "log_every");
  if (command.Given("log-every") && command.Int("log-every") == 0)
    options.flags.emplace_back("log_every", command.String("log-every"));
  for (const char* flag : {"out", "resume", "trace", "cluster", "progress", "profile"}) {
    if (command.Given(flag)) options.flags.emplace_back(flag, command.String(flag));
  }
  if (command.Given("init-from")) options.flags.emplace_back("init_from", command.String("init-from"));
  if (command.Given("attach") && !command.Bool("attach")) options.flags.emplace_back("no_attach", 1.0);
  if (command.Given("n")) options.flags.emplace_back("ranks_given", true);
  if (command.Bool("json")) options.flags.emplace_back("json", true);
  options.traceback = command.Bool("traceback");
  if (command.Bool("partial")) options.flags.emplace_back("partial", true);
  if (command.Bool("steps-only")) options.flags.emplace_back("steps_only", true);
  return options;
}

Status CallVerb(Session& session, const std::string& name) {
  RETURN_IF_ERROR(session.RunText(absl::StrCat("return require('mslua.verbs').", name, "()"), "=mslua/verb"));
  return absl::OkStatus();
}

int RunRecipe(const cli::CommandLine& command) {
  SessionOptions options = OptionsOf(command);
  if (command.verb == "eval") options.flags.emplace_back("ckpt", command.String("ckpt"));
  return RunAsRank(command, std::move(options), Joins::kAtOnce, [&](Session& session) -> StatusOr<int> {
    RETURN_IF_ERROR(CheckRecipe(session.options().file));
    RETURN_IF_ERROR(CallVerb(session, command.verb));
    return static_cast<int>(lua_tonumber(session.lua(), -1));
  });
}

}  // namespace mslua
