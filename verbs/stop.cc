// mslua stop
#include "absl/time/clock.h"
#include "cli/flags.h"
#include "core/base/exit_code.h"
#include "verbs/define.h"
#include "verbs/support/attach_client.h"
#include "verbs/support/report.h"

DEFINE_bool(now, false, "without a checkpoint");

namespace mslua {
namespace {

int RunStop(const cli::CommandLine& command) {
  auto connection = AttachTo(command);
  if (!connection.ok()) return Report(connection.status(), kExitEnvironment);
  auto taken = (*connection)->Call(".rw", false);
  if (!taken.ok()) return Report(taken.status());
  const auto answer = (*connection)->Call(command.Bool("now") ? ".stop now" : ".stop", false);
  if (!answer.ok()) return Report(answer.status());
  PrintAnswer(*answer);
  // Until the job has saved and closed its endpoint.
  while ((*connection)->Poll()) absl::SleepFor(absl::Milliseconds(20));
  return kExitOk;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(stop) {
  VerbDef verb;
  verb.name = "stop";
  verb.usage = "[RUN] [flags]";
  verb.doc = "stop a running job after a checkpoint";
  verb.max_positional = 1;
  verb.flags = {Switch(FLAGS_now)};
  verb.examples = {"mslua stop", "mslua stop last", "mslua stop runs/a --now"};
  verb.place = 325;
  verb.run = RunStop;
  return verb;
}

}  // namespace mslua::cli
