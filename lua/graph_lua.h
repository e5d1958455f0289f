// Graphs in Lua: core.trace, core.value_and_grad, core.build_train, core.build_eval.
#pragma once

#include <memory>
#include <vector>

#include "core/graph/graph.h"
#include "lua/object.h"
#include "lua/parameter.h"
#include "lua/program.h"

namespace mslua {

// A traced graph and what it reads of the store.
struct TracedGraph {
  Graph graph;
  std::vector<std::shared_ptr<ParameterData>> parameters;  // also optimizer state
  std::unique_ptr<Program> program;                        // compiled on the first run
  // For a training step of several ranks: what was traced, before it was partitioned for this rank, and its options.
  // One item per line, with the recipe's line behind "  # ". It must be equal on all ranks.
  std::string common;
};

template <>
struct KindName<std::shared_ptr<TracedGraph>> {
  static constexpr const char* value = "Graph";
};

class Trace;

// Reads {name?, dtype, shape}; a missing name is "x<i>".
struct InputSpec {
  std::string name;
  TensorType type;
};
StatusOr<std::vector<InputSpec>> ReadInputSpecs(lua_State* L, int index, absl::string_view what);

// Calls the function at `index` with `inputs`; its results as values, the first a float scalar when `scalar` is set.
StatusOr<std::vector<Value>> CallTraced(lua_State* L, Session& session, int function, const std::vector<Value>& inputs,
                                        absl::string_view what);

// Pushes the trace's graph as a Graph.
StatusOr<int> PushGraph(lua_State* L, Trace& trace);

// The parameters in the list at `index`; nil gives none.
StatusOr<std::vector<std::shared_ptr<ParameterData>>> ReadParameters(lua_State* L, int index, absl::string_view what);

// Entries of the module.
void OpenGraphs(lua_State* L);
void OpenGradients(lua_State* L);
void OpenTraining(lua_State* L);

}  // namespace mslua
