// mslua keep
#include "absl/time/time.h"
#include "cli/common_flags.h"
#include "launch/image_keeper.h"
#include "verbs/define.h"

DEFINE_double(seconds, 60, "how long the images wait after the job's last process has ended");

namespace mslua::cli {

MSLUA_VERB(keep) {
  VerbDef verb;
  verb.name = "keep";
  verb.usage = "JOB [flags]";
  verb.doc = "keep the images of a job's ranks while they start again (--recover starts it)";
  verb.min_positional = 1;
  verb.max_positional = 1;
  verb.flags = {Number(FLAGS_seconds, "S", 0)};
  verb.examples = {"mslua keep 5f3a9c01", "mslua keep 7b1e20c4 --seconds 1", "mslua keep cluster-0d2f11aa --seconds 5"};
  verb.place = 615;
  verb.run = [](const CommandLine& command) {
    return RunImageKeeper(command.positional[0], absl::Seconds(command.Float("seconds")));
  };
  return verb;
}

}  // namespace mslua::cli
