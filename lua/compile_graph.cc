#include "lua/compile_graph.h"

#include <string>

#include "lua/device.h"
#include "lua/options.h"

namespace mslua {

PassOptions DumpsOf(Session& session) {
  PassOptions options;
  options.rank = session.state().rank;
  options.save_graphs = OptionInt(session.lua(), "save_graphs");
  const std::string path = OptionString(session.lua(), "save_graphs_path");
  if (!path.empty()) options.save_graphs_path = path;
  return options;
}

StatusOr<std::unique_ptr<Executable>> CompileGraph(Session& session, const StepGraph& graph, bool share,
                                                   Decisions* decisions) {
  for (const auto& p : graph.parameters) RETURN_IF_ERROR(ValueOf(session.state(), *p).status());
  CompileOptions options;
  static_cast<PassOptions&>(options) = DumpsOf(session);
  options.share = share;
  ASSIGN_OR_RETURN(options.device, DeviceOf(session));
  ASSIGN_OR_RETURN(options.nccl, NcclOf(session));
  options.decisions = decisions;
  return CompileShared(session, graph.graph, options);
}

}  // namespace mslua
