// core.export_onnx: a traced network as an ONNX file.
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/onnx/export.h"
#include "core/step/parameter.h"
#include "lua/graph_lua.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

StatusOr<std::shared_ptr<TracedGraph>> GraphField(lua_State* L, const char* name) {
  lua_getfield(L, 1, name);
  const auto* graph = ToObject<std::shared_ptr<TracedGraph>>(L, -1);
  if (graph == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("export_onnx: ", name, ": expected a Graph, got ", Describe(L, -1)));
  return *graph;
}

// core.export_onnx {graph =, other =, checks = {graph, ..}, path =, dtype =, metadata = {{key, value}, ..}}: the number
// of operators, bytes
StatusOr<int> ExportOnnx(lua_State* L, Session& session) {
  RETURN_IF_ERROR(CheckFields(L, 1, "export_onnx", {"graph", "other", "checks", "path", "dtype", "metadata"}));
  ASSIGN_OR_RETURN(const auto graph, GraphField(L, "graph"));
  ASSIGN_OR_RETURN(const auto other, GraphField(L, "other"));
  ASSIGN_OR_RETURN(const std::string path, FieldString(L, 1, "path", ""));
  lua_getfield(L, 1, "dtype");
  ASSIGN_OR_RETURN(const DType weights, ReadDType(L, -1, "export_onnx: dtype"));
  const auto value_of = [&](const std::string& name) -> StatusOr<TensorView> {
    for (const auto& p : graph->parameters) {
      if (p->name == name) return ValueOf(session.state(), *p);
    }
    return absl::InternalError(absl::StrCat("export_onnx: no parameter '", name, "'"));
  };
  std::vector<const Graph*> others;
  lua_getfield(L, 1, "checks");
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    const StackGuard guard(L);
    lua_rawgeti(L, -1, i);
    const auto* third = ToObject<std::shared_ptr<TracedGraph>>(L, -1);
    if (third == nullptr) return absl::InvalidArgumentError("export_onnx: checks: expected graphs");
    others.push_back(&(*third)->graph);
  }
  RETURN_IF_ERROR(onnx::CheckOtherSizes(graph->graph, other->graph, others, value_of));
  ASSIGN_OR_RETURN(onnx::Model model, onnx::ExportGraph(graph->graph, other->graph, weights, value_of));
  lua_getfield(L, 1, "metadata");
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    const StackGuard guard(L);
    lua_rawgeti(L, -1, i);
    lua_rawgeti(L, -1, 1);
    ASSIGN_OR_RETURN(const std::string key, ReadString(L, -1, "export_onnx: metadata"));
    lua_rawgeti(L, -2, 2);
    ASSIGN_OR_RETURN(const std::string value, ReadString(L, -1, "export_onnx: metadata"));
    model.metadata.emplace_back(key, value);
  }
  RETURN_IF_ERROR(WithExitCode(onnx::WriteModel(model, path), kExitStorage));
  int64_t bytes = 0;
  for (const auto& t : model.initializers) bytes += t.type.bytes();
  lua_pushnumber(L, static_cast<double>(model.nodes.size()));
  lua_pushnumber(L, static_cast<double>(bytes));
  return 2;
}

}  // namespace

void OpenOnnx(lua_State* L) { SetFunctions(L, {{"export_onnx", Entry<ExportOnnx>}}); }

}  // namespace mslua
