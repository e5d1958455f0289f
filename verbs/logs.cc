// mslua logs
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/common_flags.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "repl/interrupt.h"
#include "verbs/define.h"
#include "verbs/support/report.h"
#include "verbs/support/run_argument.h"
#include "verbs/support/run_summary.h"

DEFINE_bool(f, false, "keep printing as they grow, until the run ends");

namespace mslua {
namespace {

int RunLogs(const cli::CommandLine& command) {
  const std::string log = absl::StrCat("rank_", command.Int("rank"), ".log");
  const auto folder = repl::FolderOfRun(command.positional.empty() ? "" : command.positional[0], log);
  if (!folder.ok()) return Report(folder.status());
  const std::string path = absl::StrCat(*folder, "/", log);
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) {
    return Report(absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno))));
  }
  const repl::InterruptScope interrupts;
  char buffer[8192];
  bool ended = !command.Bool("f");  // nothing is written any more: the next end of the file is the last one
  while (!repl::InterruptPending()) {
    const size_t n = std::fread(buffer, 1, sizeof buffer, file);
    std::fputs(Printable(absl::string_view(buffer, n)).c_str(), stdout);
    if (std::fflush(stdout) != 0) break;  // the end of the program says why
    if (n > 0) continue;
    if (ended) break;
    std::clearerr(file);
    ended = HasEnded(*folder);
    if (!ended) absl::SleepFor(absl::Milliseconds(200));
  }
  std::fclose(file);
  return kExitOk;
}

}  // namespace
}  // namespace mslua

namespace mslua::cli {

MSLUA_VERB(logs) {
  VerbDef verb;
  verb.name = "logs";
  verb.usage = "[RUN] [flags]";
  verb.doc = "the logs of a job";
  verb.max_positional = 1;
  verb.flags = {Switch(FLAGS_f), Rank().Help("of this rank")};
  verb.examples = {"mslua logs", "mslua logs last -f", "mslua logs runs/a --rank 0"};
  verb.place = 315;
  verb.run = RunLogs;
  return verb;
}

}  // namespace mslua::cli
