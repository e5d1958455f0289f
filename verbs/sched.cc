// mslua sched
#include "absl/strings/str_cat.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "launch/job.h"
#include "launch/launcher.h"
#include "launch/this_host.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_as_rank.h"

DEFINE_string(host, "", "address to listen on (default MS_SCHED_HOST, else 127.0.0.1)");
DEFINE_int64(port, -1, "port; 0 takes a free one (default MS_SCHED_PORT, else 0)");
DEFINE_int64(workers, 0, "how many workers to wait for (default MS_WORKER_NUM)");
DEFINE_int64(spares, 0, "with recovery: workers beyond these, which wait for a place");
DEFINE_int64(replace_after, 30, "with recovery: seconds that a lost worker is waited for");

namespace mslua {
namespace {

bool IsText(absl::string_view flag) { return flag == "host" || flag == "elastic"; }

int RunSched(const cli::CommandLine& command) {
  const Status files = CheckOpenFiles(LimitsHere());
  if (!files.ok()) return Report(files, kExitEnvironment);
  constexpr int64_t kMostPort = 65535;
  if (command.Given("port") && command.Int("port") > kMostPort) {
    return Report(absl::InvalidArgumentError(
        absl::StrCat("--port expects a whole number from 0 to ", kMostPort, ", got ", command.Int("port"))));
  }
  Environment environment = OwnEnvironment();
  environment["MS_ROLE"] = "MS_SCHED";
  const auto set = [&](const char* flag, const char* variable, const std::string& otherwise) {
    std::string& value = environment[variable];
    if (value.empty()) value = otherwise;
    if (command.Given(flag)) value = IsText(flag) ? command.String(flag) : absl::StrCat(command.Int(flag));
    if (value.empty()) environment.erase(variable);
  };
  set("host", "MS_SCHED_HOST", "127.0.0.1");
  set("port", "MS_SCHED_PORT", "0");
  set("workers", "MS_WORKER_NUM", "");
  set("spares", kSpares, "");
  set("elastic", kElastic, "");
  set("replace-after", kReplaceAfterVariable, "");
  if (environment.count("MS_WORKER_NUM") == 0) {
    return Report(
        absl::InvalidArgumentError("sched: expected --workers N, how many workers to wait for, or MS_WORKER_NUM=N "
                                   "in the environment"),
        kExitEnvironment);
  }
  const auto identity = WhoAmI(environment, ReadTextFile);
  if (!identity.ok()) return Report(identity.status(), kExitEnvironment);
  NetworkOptions network = NetworkOf(command);
  const Status one = AddTlsVariable(identity->tls_file, &network);
  if (!one.ok()) return Report(one);
  return RunScheduler(*identity, HeartbeatLimit(command), network);
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(sched) {
  VerbDef verb;
  verb.name = "sched";
  verb.usage = "[flags]";
  verb.doc = "the scheduler of a cluster without MPI: gathers the workers and watches them";
  verb.flags = {Text(FLAGS_host, "H"),
                Integer(FLAGS_port, "P", 0),
                Integer(FLAGS_workers, "N", 1),
                Integer(FLAGS_spares, "N", 0),
                Elastic(),
                Integer(FLAGS_replace_after, "S", 0),
                HeartbeatTimeout(),
                Tls(),
                InsecureNetwork()};
  verb.examples = {"mslua sched --workers 8", "mslua sched --workers 8 --port 8118",
                   "MS_WORKER_NUM=8 MS_SCHED_PORT=8118 mslua sched"};
  verb.place = 600;
  verb.run = RunSched;
  return verb;
}

}  // namespace mslua::cli
