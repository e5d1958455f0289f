// `mslua logs` and `top`: what runs have written, and a running one refreshed.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attach/client/connection.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "lua/verbs.h"
#include "repl/interrupt.h"
#include "repl/run_argument.h"
#include "repl/verbs.h"

namespace mslua {
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
  while (!repl::InterruptPending()) {
    const size_t n = std::fread(buffer, 1, sizeof buffer, file);
    std::fputs(Printable(absl::string_view(buffer, n)).c_str(), stdout);
    std::fflush(stdout);
    if (n > 0) continue;
    if (!command.Bool("f")) break;
    std::clearerr(file);
    absl::SleepFor(absl::Milliseconds(200));
  }
  std::fclose(file);
  return kExitOk;
}

int RunTop(const cli::CommandLine& command) {
  const auto job = endpoint::FindJob(command.positional.empty() ? "" : command.positional[0]);
  if (!job.ok()) return Report(job.status(), kExitEnvironment);
  auto connection = repl::Connection::Attach(*job, 0, absl::Seconds(3));
  if (!connection.ok()) return Report(connection.status(), kExitEnvironment);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const repl::InterruptScope interrupts;
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

}  // namespace mslua
