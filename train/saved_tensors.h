// Which tensors of a rank's store a training saves, under which names, and which part of each a rank has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attach/server/training_view.h"
#include "core/step/rank_state.h"
#include "core/step/train_graph.h"
#include "core/train/restore.h"
#include "train/training_spec.h"

namespace mslua {

// What of the store is not the same on all ranks: layerwise_parallel parameters with their optimizer state, what is
// sharded, and what data parallel ranks compute from their own batches (running statistics). `together`: several ranks
// train one network.
TensorParts PartsOf(RankState& state, const StepGraph& graph, bool together);
// The network's parameters and states, and what else the step reads, such as the optimizer's state.
TensorNames NamesOf(RankState& state, const TrainingSpec& spec);
// How what this rank's store has under a name lies in the whole.
endpoint::TensorPlace PlaceOf(const RankState& state, const TensorParts& parts, const std::string& name);

// Gives those parameters of the network a value that no step reads, for the checkpoint to have them all; where `wanted`
// says so of their name.
Status MakeValues(RankState& state, const TrainingSpec& spec,
                  const std::function<bool(const std::string& name)>& wanted);
// What an evaluation reads of which data parallel ranks may have values of their own, and which it does not replace.
StatusOr<std::vector<std::string>> VaryingOf(RankState& state, const StepGraph& graph);
// FailedPrecondition where a parameter that all ranks of data parallel training have alike is another one on some rank
// than on rank 0. What a rank has a part of, or may have of its own, is not compared.
Status CompareParameters(RankState& state, const StepGraph& graph);
// The same of a network of which ranks keep parts: FailedPrecondition where ranks have, or were given, other values of
// a parameter. `resumed`: what they were given before does not count any more.
Status CompareShardedParameters(RankState& state, absl::Span<const std::shared_ptr<ParameterData>> parameters,
                                bool resumed);
// Gives every rank rank 0's parameters and states, but for layerwise_parallel parameters, the optimizer's state and, in
// a run that has resumed, what ranks have values of their own of (ParameterData::MayVary).
Status BroadcastParameters(RankState& state, const StepGraph& graph, bool resumed);

}  // namespace mslua
