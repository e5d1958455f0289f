// What a recipe says of its training, read from the table that core.trainer takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lua/dataset_lua.h"
#include "lua/graph_lua.h"
#include "train/training_spec.h"

namespace mslua {

// The field `graph` of the table at `index`.
StatusOr<std::shared_ptr<TracedGraph>> FieldGraph(lua_State* L, int index, const std::string& what);

// Reads the table at 1; its functions of Lua run in `session`, which outlives the spec.
StatusOr<std::shared_ptr<TrainingSpec>> ReadTrainingSpec(lua_State* L, Session& session);

// The batches of an evaluation. `whole`: every rank reads all of them, and the graph shards them.
StatusOr<TrainingData> OpenEval(Session& session, DatasetHandle& dataset, bool whole);

// Pushes a table: the list of each output's sums, by its name.
void PushSums(lua_State* L, const std::vector<MetricSums>& sums);

}  // namespace mslua
