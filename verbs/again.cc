// mslua again
#include "launch/again.h"

#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "verbs/define.h"
#include "verbs/support/report.h"

DEFINE_int64(restarts, -1, "restarts in all; without it no limit");

namespace mslua {
namespace {

int RunCommandAgain(const cli::CommandLine& command) {
  AgainOptions options;
  options.command = command.positional;
  if (command.Given("max-restarts")) options.max_restarts = command.Int("max-restarts");
  const auto code = RunAgain(options);
  return code.ok() ? *code : Report(code.status(), kExitEnvironment);
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(again) {
  VerbDef verb;
  verb.name = "again";
  verb.usage = "[flags] -- COMMAND ...";
  verb.doc = "run a starter of ranks, such as mpirun, again when a rank has died";
  verb.min_positional = 1;
  verb.max_positional = 1 << 16;
  verb.flags = {Integer(FLAGS_restarts, "N", 0).As("max-restarts")};
  verb.examples = {"mslua again -- mpirun -n 2 mslua train recipes/quickstart.lua",
                   "mslua again --max-restarts 5 -- mpirun -n 2 mslua train recipes/quickstart.lua",
                   "mslua again -- mslua train recipes/quickstart.lua"};
  verb.place = 610;
  verb.run = RunCommandAgain;
  return verb;
}

}  // namespace mslua::cli
