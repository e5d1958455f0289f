// core.stepper: one training step at a time, fed by Lua (TrainOneStepCell); or the update of one (an optimizer's call).
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/runtime/shaped_executable.h"
#include "core/step/prints.h"
#include "core/train/agreement.h"
#include "lua/callback.h"
#include "lua/compile_graph.h"
#include "lua/optimizer_lua.h"
#include "lua/schedule_lua.h"
#include "lua/tensor_lua.h"
#include "lua/trainer_lua.h"
#include "lua/trainer_spec.h"
#include "train/resuming.h"
#include "train/saved_tensors.h"

namespace mslua {
namespace {

// One step at a time, fed by Lua.
struct Stepper {
  std::shared_ptr<TracedGraph> graph;
  std::unique_ptr<Executable> executable;
  std::vector<Print> prints;
  Schedule schedule;
  Callback lr_function;
  std::shared_ptr<OptimizerHistory> history;
  Groups* together = nullptr;  // ranks that train one network; null: this rank is alone
};

}  // namespace

template <>
struct KindName<std::shared_ptr<Stepper>> {
  static constexpr const char* value = "Stepper";
};

namespace {

// The inputs that are columns.
std::vector<int32_t> DataNodes(const Graph& graph) {
  std::vector<int32_t> nodes;
  for (int32_t i : graph.Inputs()) {
    if (graph.nodes[i].attrs.Str("kind") == kData) nodes.push_back(i);
  }
  return nodes;
}

bool HasFewerRows(const TensorType& got, const TensorType& made_for) {
  if (got.dtype != made_for.dtype || got.rank() != made_for.rank() || got.rank() == 0) return false;
  Shape full = got.shape;
  full[0] = made_for.shape[0];
  return got.shape[0] < made_for.shape[0] && full == made_for.shape;
}

// Makes the step that of the shape which `data` has.
Status SelectShape(const Stepper& s, const std::vector<Tensor>& data) {
  const std::vector<const StepGraph*> shapes = s.graph->shapes();
  size_t wrong = 0;  // the first argument that the first shape does not have
  for (size_t shape = shapes.size(); shape-- > 0;) {
    const Graph& graph = shapes[shape]->graph;
    const std::vector<int32_t> columns = DataNodes(graph);
    wrong = 0;
    while (wrong < data.size() && data[wrong].type == graph.nodes[columns[wrong]].outputs[0]) ++wrong;
    if (wrong < data.size()) continue;
    if (ShapedExecutable* const shaped = ShapedOf(s.executable.get())) shaped->Select(static_cast<int64_t>(shape));
    return absl::OkStatus();
  }
  const Graph& graph = s.graph->graph;
  const TensorType &got = data[wrong].type, &made_for = graph.nodes[DataNodes(graph)[wrong]].outputs[0];
  return absl::InvalidArgumentError(absl::StrCat(
      "argument ", wrong + 1, " of the training step is ", ToString(got), ", it was made for ", ToString(made_for),
      shapes.size() > 1 ? absl::StrCat(" and ", shapes.size() - 1, " other shapes") : "",
      HasFewerRows(got, made_for) ? ": ds:batch(n, true) leaves out a last batch with fewer rows" : ""));
}

StatusOr<int> StepOnce(lua_State* L, Session& session) {
  Stepper& s = **static_cast<std::shared_ptr<Stepper>*>(lua_touserdata(L, lua_upvalueindex(1)));
  const Graph& graph = s.graph->graph;
  const std::vector<int32_t> columns = DataNodes(graph);
  if (static_cast<int>(columns.size()) != lua_gettop(L)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a training step takes ", columns.size(), " tensors, got ", lua_gettop(L)));
  }
  std::vector<Tensor> data;
  for (size_t c = 0; c < columns.size(); ++c) {
    ASSIGN_OR_RETURN(Tensor t,
                     ReadTensor(session, L, static_cast<int>(c) + 1, absl::nullopt, absl::StrCat("argument ", c + 1)));
    RETURN_IF_ERROR(s.executable->BindInput(graph.nodes[columns[c]].attrs.Str("name"), t.data.get()));
    data.push_back(std::move(t));
  }
  RETURN_IF_ERROR(SelectShape(s, data));
  double lr = s.lr_function.ok() ? 0 : s.schedule.At(s.history->steps);
  if (s.lr_function.ok()) {
    ASSIGN_OR_RETURN(lr, CallRate(session, s.lr_function, s.history->steps, /*epoch=*/1));
    // It may follow from a loss, of which each rank has its own.
    if (s.together != nullptr) RETURN_IF_ERROR(ShareNumber(*s.together, &lr, "the learning rate"));
  }
  lr = s.history->Reduced(lr);
  // A step need not read these: SGD knows no number of the step.
  for (const auto& [name, value] : {std::make_pair("lr", lr), {"step", static_cast<double>(s.history->updates)}}) {
    const auto& names = s.executable->inputs();
    if (std::find(names.begin(), names.end(), name) != names.end())
      RETURN_IF_ERROR(s.executable->SetScalar(name, value));
  }
  RETURN_IF_ERROR(s.executable->Run());
  if (!s.prints.empty()) WritePrints(s.prints, *s.executable, session.prefix);
  s.history->Count(1, 1, s.graph->ema);
  // An update of given gradients has no loss.
  if (!graph.outputs[0].updates.empty()) return 0;
  const TensorView loss = s.executable->Output(0);
  ASSIGN_OR_RETURN(Tensor out, NewTensor(session.allocator(), loss.type));
  std::memcpy(out.data.get(), loss.data, static_cast<size_t>(loss.type.bytes()));
  PushObject<Tensor>(L, std::move(out));
  return 1;
}

// core.stepper(spec)
StatusOr<int> MakeStepper(lua_State* L, Session& session) {
  RETURN_IF_ERROR(
      CheckFields(L, 1, "stepper", {"graph", "schedule", "lr_function", "history", "broadcast", "together"}));
  auto s = std::make_shared<Stepper>();
  ASSIGN_OR_RETURN(s->graph, FieldGraph(L, 1, "stepper"));
  s->lr_function = Callback::Field(session, 1, "lr_function");
  ASSIGN_OR_RETURN(s->history, FieldHistory(L, 1, "stepper"));
  lua_getfield(L, 1, "schedule");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(s->schedule, ReadSchedule(L, -1));
  }
  ASSIGN_OR_RETURN(s->executable, CompileGraph(session, *s->graph));
  s->prints = FindPrints(s->executable->graph());
  ASSIGN_OR_RETURN(const bool broadcast, FieldBool(L, 1, "broadcast", false));
  ASSIGN_OR_RETURN(const bool together, FieldBool(L, 1, "together", false));
  if (together) s->together = session.state().groups.get();
  if (s->together != nullptr && !s->lr_function.ok()) {
    const std::string rates = RatesText("lr", s->schedule, s->history->steps);
    RETURN_IF_ERROR(WithExitCode(CompareTexts(*s->together, rates, "learning rates"), kExitHang));
  }
  RankState& state = session.state();
  if (broadcast) {
    RETURN_IF_ERROR(BroadcastParameters(state, *s->graph, /*resumed=*/false));
  } else if (s->together != nullptr) {
    const Status alike = s->graph->sharded ? CompareShardedParameters(state, s->graph->parameters, /*resumed=*/false)
                                           : CompareParameters(state, *s->graph);
    RETURN_IF_ERROR(WithExitCode(alike, kExitHang));
  }
  PushObject<std::shared_ptr<Stepper>>(L, std::move(s));
  lua_pushcclosure(L, Entry<StepOnce>, 1);
  return 1;
}

}  // namespace

void OpenSteppers(lua_State* L) {
  NewKind<std::shared_ptr<Stepper>>(L);
  lua_pop(L, 1);
  SetFunctions(L, {{"stepper", Entry<MakeStepper>}});
}

}  // namespace mslua
