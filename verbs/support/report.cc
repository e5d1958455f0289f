#include "verbs/support/report.h"

#include <cstdio>
#include <string>

#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "lua/session.h"

namespace mslua {

int ExitCodeOf(const Status& status) {
  if (ExitCodeIn(status) != kExitOk) return ExitCodeIn(status);
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
      return kExitData;
    // Busy, not there or without an answer: a later try may find it otherwise.
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return kExitEnvironment;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitUsage;
  }
}

void PrintTraceback(const Status& status) {
  const std::string frames = TracebackOf(status);
  if (!frames.empty()) std::fprintf(stderr, "%s\n", frames.c_str());
}

int Report(const Status& status, int exit_code) {
  if (status.ok()) return kExitOk;
  std::fflush(stdout);
  std::fprintf(stderr, "mslua: error: %s\n", PrintableMessage(status.message()).c_str());
  PrintTraceback(status);
  return exit_code != kExitOk ? exit_code : ExitCodeOf(status);
}

}  // namespace mslua
