// Graphs in Lua: core.trace, core.value_and_grad, core.build_train, core.build_eval.
#pragma once

#include <memory>
#include <vector>

#include "core/step/train_graph.h"
#include "lua/object.h"
#include "lua/program.h"

namespace mslua {

// A traced graph, and its program once it has run.
struct TracedGraph : StepGraph {
  std::unique_ptr<Program> program;  // compiled on the first run
};

template <>
struct KindName<std::shared_ptr<TracedGraph>> {
  static constexpr const char* value = "Graph";
};

// Reads {name?, dtype, shape}; a missing name is "x<i>".
StatusOr<std::vector<InputSpec>> ReadInputSpecs(lua_State* L, int index, absl::string_view what);

// Pushes the trace's graph as a Graph.
StatusOr<int> PushGraph(lua_State* L, Trace& trace);

// The parameters in the list at `index`; nil gives none.
StatusOr<std::vector<std::shared_ptr<ParameterData>>> ReadParameters(lua_State* L, int index, absl::string_view what);

// Entries of the module.
void OpenGraphs(lua_State* L);
void OpenGradients(lua_State* L);
void OpenTraining(lua_State* L);

}  // namespace mslua
