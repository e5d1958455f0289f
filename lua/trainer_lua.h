// Training in Lua: core.trainer, core.evaluate, core.stepper.
#pragma once

#include <memory>
#include <string>

#include "lua/graph_lua.h"

namespace mslua {

// The field `graph` of the table at `index`.
StatusOr<std::shared_ptr<TracedGraph>> FieldGraph(lua_State* L, int index, const std::string& what);
// The session's wishes for compiling: core.options.save_graphs and its path, the rank.
CompileOptions OptionsOf(Session& session);
// Makes the parameters' values where they are not there yet, and compiles with the session's options. `share`: all
// ranks compile it together; `decisions`: as in CompileOptions.
StatusOr<std::unique_ptr<Executable>> CompileGraph(Session& session, const TracedGraph& graph, bool share = false,
                                                   Decisions* decisions = nullptr);
// Gives every rank rank 0's parameters, those that are a rank's own excepted.
Status BroadcastParameters(Session& session, const TracedGraph& graph);

// Entries of the module, into the table on the top of the stack.
void OpenTrainers(lua_State* L);
void OpenSteppers(lua_State* L);

}  // namespace mslua
