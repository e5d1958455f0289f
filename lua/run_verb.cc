// The verbs that run a Lua file: a script, or a recipe in one of the ways of mslua.verbs.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "lua/object.h"
#include "lua/run_folder.h"
#include "lua/verbs.h"

namespace mslua {
namespace {

Status CheckReadable(const std::string& file) {
  if (access(file.c_str(), R_OK) == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("cannot read ", file, ": ", std::strerror(errno)));
}

// `--ckpt last` as a path; a given path as it is.
StatusOr<std::string> CheckpointOf(const cli::CommandLine& command) {
  const std::string which = command.String("ckpt");
  if (which == "best") return absl::UnimplementedError("--ckpt best is not built yet; give the checkpoint's path");
  if (which != "last") return which;
  ASSIGN_OR_RETURN(const std::string folder, LastRunFolder(""));
  return folder + "/ckpt";
}

// Calls a function of mslua.verbs and leaves its result on the stack.
Status CallVerb(Session& session, const std::string& name) {
  RETURN_IF_ERROR(session.RunText(absl::StrCat("return require('mslua.verbs').", name, "()"), "=mslua/verb"));
  return absl::OkStatus();
}

}  // namespace

SessionOptions OptionsOf(const cli::CommandLine& command) {
  SessionOptions options;
  options.verb = command.verb;
  if (!command.positional.empty()) {
    options.file = command.positional[0];
    options.args.assign(command.positional.begin() + 1, command.positional.end());
  }
  options.overrides = command.overrides;
  options.preset = command.String("preset");
  if (command.Given("device")) options.device = command.String("device");
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
  number("log-every", "log_every");
  if (command.Given("log-every") && command.Int("log-every") == 0)
    options.flags.emplace_back("log_every", command.String("log-every"));
  for (const char* flag : {"out", "resume"}) {
    if (command.Given(flag)) options.flags.emplace_back(flag, command.String(flag));
  }
  if (command.Given("json")) options.flags.emplace_back("json", true);
  return options;
}

int Report(const Status& status, int exit_code) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  std::fprintf(stderr, "mslua: error: %s\n", std::string(status.message()).c_str());
  if (exit_code != 0) return exit_code;
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return kExitData;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitUsage;
  }
}

int RunScript(const cli::CommandLine& command) {
  auto session = Session::Create(OptionsOf(command));
  if (!session.ok()) return Report(session.status());
  const std::string& file = (*session)->options().file;
  Status status = CheckReadable(file);
  if (status.ok()) status = (*session)->RunFile(file);
  return Report(status, (*session)->exit_code);
}

int RunRecipe(const cli::CommandLine& command) {
  SessionOptions options = OptionsOf(command);
  if (command.verb == "eval") {
    const auto path = CheckpointOf(command);
    if (!path.ok()) return Report(path.status());
    options.flags.emplace_back("ckpt", *path);
  }
  auto session = Session::Create(std::move(options));
  if (!session.ok()) return Report(session.status());
  Status status = CheckReadable((*session)->options().file);
  if (status.ok()) status = CallVerb(**session, command.verb);
  if (!status.ok()) return Report(status, (*session)->exit_code);
  return static_cast<int>(lua_tonumber((*session)->lua(), -1));
}

int RunRecipes(const cli::CommandLine& command) {
  const std::string action = command.positional[0];
  if (action != "show" && action != "check")
    return Report(absl::UnimplementedError(absl::StrCat("recipes ", action, " is not part of this build")));
  SessionOptions options = OptionsOf(command);
  options.verb = "recipes";
  options.file = command.positional[1];
  options.args.clear();
  auto session = Session::Create(std::move(options));
  if (!session.ok()) return Report(session.status());
  Status status = CheckReadable((*session)->options().file);
  if (status.ok()) status = CallVerb(**session, action == "show" ? "show" : "graph");
  if (!status.ok()) return Report(status, (*session)->exit_code);
  if (action == "check") std::printf("%s: ok\n", command.positional[1].c_str());
  return kExitOk;
}

}  // namespace mslua
