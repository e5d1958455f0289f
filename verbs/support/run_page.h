// One HTML page about runs, which needs no network: `mslua report`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "verbs/support/run_record.h"

namespace mslua {

// A curve in at most `most` points (at least 2): of each stretch of neighbouring points the smallest and the largest
// value stay, and the first and the last point of all do.
std::vector<std::pair<int64_t, double>> Decimate(const std::map<int64_t, double>& curve, size_t most);

// `json` as text that may stand in a <script> element: '<', '>' and '&' are escaped.
std::string ScriptText(const std::string& json);

// The page of these runs: their curves, what they were set to, parameters, interventions. What a run folder does not
// have, the page says. Below 2 MB for runs of any length.
std::string RunPage(const std::vector<RunRecord>& records);

}  // namespace mslua
