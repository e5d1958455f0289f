// The records in a run folder, which a training appends to: logs, metrics, events. One training's records are not
// mixed with another's.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Whose records are meant: those of one rank, and with `first` those that one rank writes for all, and those of ranks
// from `ranks` on, which this training does not have.
struct RecordsOwner {
  int rank = 0;
  bool first = true;
  int ranks = 1;
};

// "earlier-<n>", which is not in the folder yet: where the records of an earlier training go.
std::string EarlierFolder(const std::string& folder);
// Moves the records into that folder of the run folder's, with what else these ranks have left: launch variables,
// reports of crashes, traces, pictures. False: there are no records, and nothing is moved.
StatusOr<bool> MoveRecords(const std::string& folder, const std::string& earlier, RecordsOwner owner);
// Empties them: the training that wrote them starts again from its beginning.
Status EmptyRecords(const std::string& folder, RecordsOwner owner);

}  // namespace mslua
