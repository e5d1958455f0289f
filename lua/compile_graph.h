// A graph of Lua's and its parameters, made ready to run.
#pragma once

#include <memory>

#include "lua/graph_lua.h"

namespace mslua {

// Where the session saves graphs: core.options.save_graphs and its path, the rank.
PassOptions DumpsOf(Session& session);
// Makes the parameters' values where they are not there yet, and compiles with the session's options; with graphs for
// several shapes of a batch all of them, as a ShapedExecutable. `share`: all
// ranks compile it together; `decisions`: as in CompileOptions.
StatusOr<std::unique_ptr<Executable>> CompileGraph(Session& session, const StepGraph& graph, bool share = false,
                                                   Decisions* decisions = nullptr);

}  // namespace mslua
