// Why a job is over, carried by its Status.
#pragma once

#include "core/base/exit_code.h"
#include "core/base/status.h"

namespace mslua {

// The rank whose fault it is (-1: none's) and the exit code for all.
struct Cause {
  int rank = -1;
  int exit_code = kExitRankCrashed;
};
Cause CauseOf(const Status& status);
bool HasCause(const Status& status);
Status WithCause(Status status, const Cause& cause);

// Marks the end of a job that starts again: its workers are to join it again.
Status WithAgain(Status status);
bool StartsAgain(const Status& status);

}  // namespace mslua
