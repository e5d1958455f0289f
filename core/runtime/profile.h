// `mslua prof`: where the time of a training step goes, launch by launch, against what this machine can do.
#pragma once

#include <functional>
#include <string>

#include "core/runtime/executable.h"

namespace mslua {

// Makes one step and a few to warm up, then measures `steps`, and so many again launch by launch unless `steps_only`;
// prints a report, or with `json` one object a line; writes a Chrome trace to `trace` unless that is empty.
Status ReportProfile(Executable* executable, const std::function<Status()>& step, int64_t steps, bool steps_only,
                     bool json, const std::string& trace);

// Floating point operations of one run of the executable on this rank, as the operators of its launches count them; for
// batches of several shapes the mean.
double FlopsOf(const Executable& executable);

}  // namespace mslua
