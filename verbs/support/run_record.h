// What a run has recorded in its folder, for the verbs that show runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua {

// The key of metrics.jsonl that is the x axis where nothing else is asked for.
inline constexpr char kStepKey[] = "step";
// Other keys that say where a record is: seconds since 1970, and samples since the first step.
inline constexpr char kTimeKey[] = "time", kSamplesKey[] = "samples";

// The numbers of metrics.jsonl by key and step. Of a step that was recorded twice, as by a run that resumed, the later
// number counts.
struct RunRecord {
  std::string folder;
  std::map<std::string, std::map<int64_t, double>> values;
  std::map<std::string, int64_t> undefined;  // how often a key was JSON's null: NaN or infinite
  int64_t broken = 0;                        // lines that are not a record, the last one not counted
  bool half_written = false;                 // the last line ends within a record
  std::vector<std::string> summaries;        // the lines of summaries.jsonl that hold more than numbers

  // The metrics' names; "step", "epoch", "time" and "samples" are none.
  std::vector<std::string> Keys() const;
};

// The record in `text`, the content of metrics.jsonl. Takes any text.
RunRecord ParseRunRecord(const std::string& folder, const std::string& text);
// Adds the content of summaries.jsonl: scalars to the values. Lines that are no record are left out.
void AddSummaries(const std::string& text, RunRecord* record);
// The record with the summaries. NotFound: the folder has no metrics.jsonl.
StatusOr<RunRecord> ReadRunRecord(const std::string& folder);
// Of each run, as FolderOfRun takes them; says on stderr which lines were left out.
StatusOr<std::vector<RunRecord>> ReadRunRecords(const std::vector<std::string>& runs);

}  // namespace mslua
