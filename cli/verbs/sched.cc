// mslua sched
#include "cli/common_flags.h"
#include "cli/verbs/all.h"

DEFINE_string(host, "", "address to listen on (default MS_SCHED_HOST, else 127.0.0.1)");
DEFINE_int64(port, -1, "port; 0 takes a free one (default MS_SCHED_PORT, else 0)");
DEFINE_int64(workers, 0, "how many workers to wait for (default MS_WORKER_NUM)");

namespace mslua::cli {

VerbDef SchedVerb() {
  VerbDef verb;
  verb.name = "sched";
  verb.usage = "[flags]";
  verb.doc = "the scheduler of a cluster without MPI: gathers the workers and watches them";
  verb.flags = {Text(FLAGS_host, "H"), Integer(FLAGS_port, "P", 0), Integer(FLAGS_workers, "N", 1), HeartbeatTimeout()};
  verb.examples = {"mslua sched --workers 8", "mslua sched --workers 8 --port 8118",
                   "MS_WORKER_NUM=8 MS_SCHED_PORT=8118 mslua sched"};
  return verb;
}

}  // namespace mslua::cli
