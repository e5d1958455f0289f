#include "lua/compile_graph.h"

#include <string>
#include <utility>
#include <vector>

#include "core/runtime/shaped_executable.h"
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
  if (graph.other_shapes.empty()) return CompileShared(session, graph.graph, options);
  std::vector<std::unique_ptr<Executable>> plans;
  std::vector<double> shares;
  for (const StepGraph* shape : graph.shapes()) {
    ASSIGN_OR_RETURN(plans.emplace_back(), CompileShared(session, shape->graph, options));
    shares.push_back(shape->share);
  }
  ASSIGN_OR_RETURN(auto shaped, ShapedExecutable::Create(std::move(plans), std::move(shares)));
  return std::unique_ptr<Executable>(std::move(shaped));
}

}  // namespace mslua
