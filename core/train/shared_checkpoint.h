// A checkpoint that the ranks of a training read together: of one directory, or of directories of their own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/checkpoint.h"

namespace mslua {

class Groups;

// A checkpoint that all ranks have opened together. A rank that cannot read a file gets what it needs from one that
// can.
struct SharedCheckpoint {
  std::unique_ptr<checkpoint::Checkpoint> own;  // as this rank sees it
  // Of the checkpoint that rank 0 opened. A rank that saved a whole checkpoint of its own has another manifest.
  checkpoint::Manifest common;
  // For each rank, '1' for each of common.files that it can read. Empty: it has a whole checkpoint of its own.
  std::vector<std::string> has;
};

// Opens, on all ranks, the newest checkpoint in `place` that all of them have and that is not damaged. `place` is this
// rank's, as LoadCheckpoint takes it: all may name one directory, or each its own. A rank without any checkpoint of
// that training takes what rank 0 found. The note of the result says on rank 0 what was passed over. Called by all
// ranks.
StatusOr<SharedCheckpoint> OpenOnAllRanks(Groups& groups, const std::string& place);

// By tensor: the parts [begin, end) of it that this rank reads.
using WantedParts = std::map<std::string, std::vector<std::pair<Shape, Shape>>>;
// Gives `from.own` those of `wanted` that it cannot read here, from ranks that can. Called by all ranks.
Status FetchParts(Groups& groups, SharedCheckpoint& from, const WantedParts& wanted);
// The same of all tensors.
Status FetchAll(Groups& groups, SharedCheckpoint& from);

}  // namespace mslua
