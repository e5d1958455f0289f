// `mslua run SCRIPT [argument ...]`, and what all verbs share.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "lua/core_module.h"
#include "lua/verbs.h"

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
  if (command.Given("device")) options.device = command.String("device");
  if (command.Given("seed")) {
    options.has_seed = true;
    options.seed = static_cast<uint64_t>(command.Int("seed"));
  }
  return options;
}

int Report(const Status& status) {
  if (status.ok()) return 0;
  std::fflush(stdout);
  std::fprintf(stderr, "mslua: error: %s\n", std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kNotFound ? 2 : 1;
}

int RunScript(const cli::CommandLine& command) {
  auto session = Session::Create(OptionsOf(command));
  if (!session.ok()) return Report(session.status());
  const std::string& file = (*session)->options().file;
  if (access(file.c_str(), R_OK) != 0) return Report(absl::NotFoundError(absl::StrCat("cannot read the script ", file, ": ", std::strerror(errno))));
  return Report((*session)->RunFile(file));
}

int RunVersion(const cli::CommandLine& command) {
  if (command.Bool("json")) std::printf("{\"version\": \"%s\", \"threads\": %d}\n", kVersion, ComputeThreads());
  else std::printf("mslua %s\n", kVersion);
  return 0;
}

}  // namespace mslua
