// mslua diag
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "verbs/define.h"
#include "verbs/support/attach_client.h"
#include "verbs/support/report.h"

namespace mslua {
namespace {

int RunDiag(const cli::CommandLine& command) {
  auto connection = AttachTo(command);
  if (!connection.ok()) return Report(connection.status(), kExitEnvironment);
  std::vector<std::string> lines = {".diag"};
  if (!command.Bool("json")) lines.push_back(".stack");
  return RunCommands(**connection, lines, command.Bool("json"));
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(diag) {
  VerbDef verb;
  verb.name = "diag";
  verb.usage = "[RUN] [flags]";
  verb.doc = "which rank hangs where";
  verb.max_positional = 1;
  verb.flags = {Json()};
  verb.examples = {"mslua diag", "mslua diag last", "mslua diag runs/a --json"};
  verb.place = 320;
  verb.run = RunDiag;
  return verb;
}

}  // namespace mslua::cli
