// mslua top
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attach/client/connection.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "repl/interrupt.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_argument.h"

namespace mslua {
namespace {

int RunTop(const cli::CommandLine& command) {
  const auto job = endpoint::FindJob(command.positional.empty() ? "" : command.positional[0]);
  if (!job.ok()) return Report(job.status(), kExitEnvironment);
  auto connection = repl::Connection::Attach(*job, 0, absl::Seconds(3));
  if (!connection.ok()) return Report(connection.status(), kExitEnvironment);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const repl::InterruptScope interrupts;
  (*connection)->interrupted = repl::InterruptPending;
  while (!repl::InterruptPending()) {
    std::string text = absl::StrCat(job->id, " ", job->name, "  ");
    for (const char* line : {".status", ".ranks", ".mem", ".plot"}) {
      const auto answer = (*connection)->Call(line, false);
      if (absl::IsUnavailable(answer.status())) return kExitOk;
      if (answer.ok()) absl::StrAppend(&text, *answer, "\n");
    }
    std::printf("%s%s", terminal ? "\033[H\033[J" : "", Printable(text).c_str());
    std::fflush(stdout);
    if (!terminal) break;
    absl::SleepFor(absl::Seconds(1));
  }
  return kExitOk;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(top) {
  VerbDef verb;
  verb.name = "top";
  verb.usage = "[RUN]";
  verb.doc = "a running job's ranks, refreshed";
  verb.max_positional = 1;
  verb.examples = {"mslua top", "mslua top last", "mslua top runs/a"};
  verb.place = 310;
  verb.run = RunTop;
  return verb;
}

}  // namespace mslua::cli
