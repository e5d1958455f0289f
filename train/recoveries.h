// The lines of a run's events.jsonl that say that its job has started again:
//   {"event":"recovery","step":441,"time":1796000000,"epoch":2,"ranks":4,"from":"memory","again":1,"cause":"rank 1/4
//   ..."}
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.h"

namespace mslua {

struct Recovery {
  int64_t step = 0;    // that training resumes after
  int64_t epoch = 1;   // how often the ranks have met, this time included
  int64_t ranks = 1;   // now
  std::string from;    // "memory", "the beginning", or the path of a checkpoint
  int64_t again = -1;  // steps computed again; -1: not known
  std::string cause;   // who was lost, and why; empty: not known
};

// Appends a line to events.jsonl of the run folder.
Status AddRecovery(const std::string& folder, const Recovery& recovery);
// Truncates events.jsonl, at `path`, to its first `bytes`. What it says of recoveries stays.
Status TruncateEvents(const std::string& path, int64_t bytes);

}  // namespace mslua
