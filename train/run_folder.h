// Run folders: runs/<name>-<date>-<time> in the working folder, each with logs, metrics and checkpoints.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

// Makes "runs/quickstart-20260131-120000"; a number follows when the name is taken.
StatusOr<std::string> NewRunFolder(const std::string& name);
// What a verb reads of a run folder.
inline constexpr char kRunCheckpoints[] = "ckpt", kRunBest[] = "ckpt/best", kRunMetrics[] = "metrics.jsonl";
// The matrices of the newest evaluation:
//   {"step":20,"labels":["cat","dog"],"matrices":{"confusion_matrix":[[9,1],[2,8]]}}   labels may be empty
inline constexpr char kRunMatrices[] = "eval.json";
// The worst samples of the newest evaluation (core/train/worst_samples.h).
inline constexpr char kRunSamples[] = "eval_samples.json";
// What attached clients changed, and recoveries (train/recoveries.h); behind "rank_<r>": the report of a rank's crash.
inline constexpr char kRunEvents[] = "events.jsonl", kRunCrash[] = ".crash";
// Behind "rank_<r>": what the rank printed, and the variables that started it.
inline constexpr char kRunLog[] = ".log", kRunLaunch[] = ".env";
// Before a number: the folder of the records of a training that was there before.
inline constexpr char kRunEarlier[] = "earlier-";
// The begin of the names of TensorBoard's files; folders of traces, of pictures that the network draws, and of what
// attached clients dump.
inline constexpr char kRunTensorBoard[] = "events.out.tfevents.", kRunTraces[] = "trace", kRunPictures[] = "samples",
                      kRunDumps[] = "dumps";
// Held by the training that writes into the folder; how the last one ended:
//   {"state":"done","step":20}   "stopped": by a user or a signal; "failed": with "cause"
inline constexpr char kRunLock[] = "lock", kRunOutcome[] = "outcome.json";

// Whether a training has a record of this name, one of those that one rank writes for all: what it did and measured.
bool IsSharedRecord(absl::string_view name);
// Whether it has something else of this name that one rank writes for all and that goes with the records.
bool IsBesideRecords(absl::string_view name);
// Whether a training writes a file or a folder of this name into its folder.
bool IsNameOfRun(absl::string_view name);

// The runs of `recipe` (of any, when empty) under runs/ that have `part` in their folder, the one that wrote it last at
// the front; a folder of checkpoints counts when there is one in it. A run is the recipe's where config.lua in its
// folder says so, or the folder's name is one of NewRunFolder.
std::vector<std::string> RunFoldersOf(const std::string& recipe, const std::string& part);

// The rule for `last` in every verb that reads run folders (`mslua help last`): the first of RunFoldersOf. NotFound
// when there is no such run; `how` says how to name another one.
StatusOr<std::string> LastRunFolder(const std::string& recipe, const std::string& part,
                                    absl::string_view how = "give a path");

// Where `last` and `best` of --ckpt, --resume and `mslua ckpt` look for a checkpoint: in `directory`, where the recipe
// keeps its checkpoints, or when that is empty in the last run of the recipe that has any. Other words are paths.
// `how` as in LastRunFolder.
StatusOr<std::string> CheckpointPlace(const std::string& word, const std::string& recipe, const std::string& directory,
                                      absl::string_view how = "give a path");

}  // namespace mslua
