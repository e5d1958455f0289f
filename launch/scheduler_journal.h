// What a scheduler that recovers writes down of its job's last epoch (decision 43): one line of JSON in the file
// scheduler.json of the recovery folder. Pure functions over bytes, and the two that read and write the file.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "rendezvous/scheduler.h"

namespace mslua {

// {"epoch":3,"workers":4,"least":0,"most":0}
std::string JournalText(const JobEpoch& epoch);
// What JournalText has written, in `path`. DataLoss: another text, or numbers out of range.
StatusOr<JobEpoch> ParseJournal(absl::string_view text, absl::string_view path);

// What the scheduler before has left of its last epoch; number 0: there was none.
StatusOr<JobEpoch> ReadJournal(const std::string& path);
// Forced to disk before it returns; the file is the old or the new one, whole. Makes the folder.
Status WriteJournal(const std::string& path, const JobEpoch& epoch);

}  // namespace mslua
