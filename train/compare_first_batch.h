// Ranks that read the same rows have the same batches: code of users may look at the rank, or draw numbers of its own.
#pragma once

#include "train/training_spec.h"

namespace mslua {

class Groups;
namespace data {
class Loader;
}  // namespace data

// Has the loader compare its next batch: ranks r and r + data.feeds read the same rows. All ranks of `groups` call it,
// and read that batch. FailedPrecondition where two ranks have different ones.
void CompareFirstBatch(Groups& groups, const TrainingData& data, data::Loader* loader);

}  // namespace mslua
