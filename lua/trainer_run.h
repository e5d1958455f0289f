// A run of the C++ step loop (core/train) as a recipe describes it: data, hooks, checkpoints, who may attach.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lua/trainer_spec.h"

namespace mslua {

// Trains; gives the last epoch's mean loss.
StatusOr<double> RunTraining(TrainerSpec* spec, Session& session);
// Trains as long as measuring `steps` steps takes, prints the profile (as JSON, the steps alone) and writes the trace
// to a file, "" for none. Nothing is saved.
Status ProfileTraining(TrainerSpec* spec, Session& session, int64_t steps, bool steps_only, bool json,
                       const std::string& trace);

// The batches of an evaluation. In global view every rank reads all of them, and the graph shards them.
StatusOr<std::shared_ptr<const data::Pipeline>> OpenEval(Session& session, DatasetHandle& dataset);
// The ranks whose sums make an evaluation's result; null: this rank's are all.
Groups* SumsOver(Session& session, Groups* together);
// What an evaluation reads of which data parallel ranks may have values of their own, and which it does not replace.
StatusOr<std::vector<std::string>> VaryingOf(Session& session, const TracedGraph& graph);

}  // namespace mslua
