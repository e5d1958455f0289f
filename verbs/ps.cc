// mslua ps
#include <cstdio>

#include "absl/time/time.h"
#include "attach/client/connection.h"
#include "attach/server/job_folder.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/json/json_string.h"
#include "verbs/define.h"
#include "verbs/support/report.h"

namespace mslua {
namespace {

int RunPs(const cli::CommandLine& command) {
  const auto jobs = endpoint::ListJobs();
  if (!jobs.ok()) return Report(jobs.status());
  if (!command.Bool("json") && !jobs->empty())
    std::printf("%-8s%-24s%-7s%-9s%-9s%-28s%s\n", "id", "recipe", "ranks", "pid", "started", "state", "run folder");
  for (const endpoint::Job& job : *jobs) {
    auto connection = repl::Connection::Attach(job, 0, absl::Seconds(1));
    auto status = connection.ok() ? (*connection)->Call(".status", false) : StatusOr<std::string>(connection.status());
    const std::string state = status.ok() ? Printable(*status) : "?";
    if (command.Bool("json")) {
      // Numbers: where training stands, and how often the ranks have met.
      const auto numbers = status.ok() ? (*connection)->Call(".status", true) : status;
      std::printf(
          "{\"id\":%s,\"name\":%s,\"ranks\":%d,\"pid\":%d,\"started\":%lld,\"state\":%s,\"status\":%s,\"run\":%s}\n",
          JsonString(job.id).c_str(), JsonString(job.name).c_str(), job.ranks, job.pid,
          static_cast<long long>(job.started), JsonString(state).c_str(), numbers.ok() ? numbers->c_str() : "null",
          JsonString(job.run).c_str());
      continue;
    }
    std::printf("%-7s %-23s %-6d %-8d %-8s %-27s %s\n", job.id.c_str(), Printable(job.name).c_str(), job.ranks, job.pid,
                absl::FormatTime("%H:%M", absl::FromTimeT(job.started), absl::LocalTimeZone()).c_str(), state.c_str(),
                Printable(job.run).c_str());
  }
  if (jobs->empty() && !command.Bool("json")) {
    std::fprintf(stderr,
                 "mslua: no job of this user runs on this host; one that was started with another TMPDIR or "
                 "XDG_RUNTIME_DIR is not seen\n");
  }
  return kExitOk;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(ps) {
  VerbDef verb;
  verb.name = "ps";
  verb.usage = "[flags]";
  verb.doc = "running jobs";
  verb.flags = {Json()};
  verb.examples = {"mslua ps", "mslua ps --json", "mslua ps --json | head -1"};
  verb.place = 300;
  verb.run = RunPs;
  return verb;
}

}  // namespace mslua::cli
