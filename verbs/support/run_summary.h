// A run in a few numbers, as `mslua runs` and `mslua sweep` print it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "verbs/support/run_record.h"

namespace mslua {

struct RunSummary {
  std::string folder, recipe;  // recipe: as the command line named it; empty: not known
  std::string state;           // "running", "done", "stopped", "failed"; "no end": the process was killed
  std::string cause;           // of "failed"
  int64_t started = 0;         // seconds since 1970; 0: not known
  int64_t steps = 0;           // made so far
  int64_t bytes = 0;           // of all files
  std::optional<double> loss;  // the last one that was recorded
  std::string best_key;        // "eval_top1"; empty: no evaluation was recorded
  std::optional<double> best;
};

// Whether the folder is one that a training has made, or writes now.
bool IsRunFolder(const std::string& folder);
// InvalidArgument, for who is about to remove the folder, where it holds what does not belong to its run: names that a
// training does not write, and run folders below it.
Status CheckOnlyARun(const std::string& folder);
// Whether the folder says that its run has ended. A run whose process was killed says nothing.
bool HasEnded(const std::string& folder);
// The metric that `record` is judged by: the largest of a share (eval_top1, eval_accuracy, eval_top5), else the
// smallest eval_loss, else the best of another metric of an evaluation. `*more`: more of it is better. Empty: none.
std::string BestKey(const RunRecord& record, bool* more);
// A run folder, whatever of it is there.
RunSummary Summarize(const std::string& folder);
// The same where its metrics.jsonl has been read.
RunSummary Summarize(const std::string& folder, const RunRecord& record);

}  // namespace mslua
