// core.build_train, core.build_steps, core.build_update and core.build_eval: what a recipe's tables say of a step
// (core/step/train_graph.h). build_train and build_steps also give the names of the parameters that no gradient
// reaches.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"
#include "core/step/optimizer_state.h"
#include "core/step/parameter.h"
#include "core/step/train_graph.h"
#include "lua/compile_graph.h"
#include "lua/graph_lua.h"
#include "lua/optimizer_lua.h"
#include "lua/options.h"
#include "lua/session.h"
#include "lua/trace_lua.h"

namespace mslua {
namespace {

StatusOr<std::vector<int64_t>> FieldInts(lua_State* L, int index, const char* name,
                                         absl::string_view what = "aggregate") {
  const StackGuard guard(L);
  lua_getfield(L, index, name);
  if (lua_isnil(L, -1)) return std::vector<int64_t>();
  return ReadInts(L, -1, absl::StrCat(what, ": ", name));
}

StatusOr<BucketRule> ReadBucketRule(lua_State* L, int index, absl::string_view what) {
  BucketRule rule;
  ASSIGN_OR_RETURN(rule.bytes, FieldInt(L, index, "bucket_bytes", rule.bytes));
  ASSIGN_OR_RETURN(rule.segments, FieldInts(L, index, "segments", what));
  return rule;
}

StatusOr<Aggregation> ReadAggregation(lua_State* L, int index, OptimizerShards* shards) {
  const StackGuard guard(L);
  Aggregation a;
  lua_getfield(L, index, "aggregate");
  if (lua_isnil(L, -1)) return a;
  const int at = lua_gettop(L);
  RETURN_IF_ERROR(
      CheckFields(L, at, "aggregate", {"ranks", "mean", "fp32_sync", "bucket_bytes", "segments", "shards"}));
  ASSIGN_OR_RETURN(a.ranks, FieldInts(L, at, "ranks"));
  ASSIGN_OR_RETURN(a.mean, FieldBool(L, at, "mean", false));
  ASSIGN_OR_RETURN(a.fp32_sync, FieldBool(L, at, "fp32_sync", true));
  ASSIGN_OR_RETURN(a.buckets, ReadBucketRule(L, at, "aggregate"));
  lua_getfield(L, at, "shards");
  if (lua_isnil(L, -1)) return a;
  const int part = lua_gettop(L);
  RETURN_IF_ERROR(
      CheckFields(L, part, "aggregate: shards",
                  {"ranks", "place", "replicas", "threshold", "accumulate", "scatter_bytes", "gather_bytes"}));
  ASSIGN_OR_RETURN(shards->ranks, FieldInts(L, part, "ranks"));
  ASSIGN_OR_RETURN(shards->replicas, FieldInts(L, part, "replicas"));
  shards->mean = a.mean;
  shards->fp32_sync = a.fp32_sync;
  ASSIGN_OR_RETURN(shards->place, FieldInt(L, part, "place", 0));
  ASSIGN_OR_RETURN(shards->threshold, FieldInt(L, part, "threshold", shards->threshold));
  ASSIGN_OR_RETURN(shards->accumulate, FieldBool(L, part, "accumulate", true));
  const auto rule = [&](const char* name, absl::optional<BucketRule>* into) -> Status {
    ASSIGN_OR_RETURN(const int64_t bytes, FieldInt(L, part, name, -1));
    if (bytes < 0) return absl::OkStatus();
    into->emplace();
    (*into)->bytes = bytes;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(rule("scatter_bytes", &shards->scatter));
  RETURN_IF_ERROR(rule("gather_bytes", &shards->gather));
  return a;
}

Status ReadGroups(lua_State* L, int optimizer, TrainSpec* spec) {
  const StackGuard guard(L);
  lua_getfield(L, optimizer, "groups");
  if (lua_isnil(L, -1)) return absl::OkStatus();
  if (lua_type(L, -1) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("optimizer: groups: expected a list, got ", Describe(L, -1)));
  const int list = lua_gettop(L), n = static_cast<int>(lua_objlen(L, list));
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, list, i);
    const std::string what = absl::StrCat("optimizer: groups[", i, "]");
    RETURN_IF_ERROR(CheckFields(L, -1, what, {"params", "weight_decay", "lr_scale", "lr", "wrapped"}));
    OptimizerRule rule = spec->rule;
    ASSIGN_OR_RETURN(rule.weight_decay, FieldNumber(L, -1, "weight_decay", rule.weight_decay));
    ASSIGN_OR_RETURN(rule.lr_scale, FieldNumber(L, -1, "lr_scale", 1));
    ASSIGN_OR_RETURN(rule.lr_input, FieldString(L, -1, "lr", "lr"));
    ASSIGN_OR_RETURN(rule.wrapped, FieldBool(L, -1, "wrapped", true));
    lua_getfield(L, -1, "params");
    ASSIGN_OR_RETURN(const std::vector<ParameterHandle> params, ReadParameters(L, -1, absl::StrCat(what, ".params")));
    for (const ParameterHandle& p : params) {
      if (!spec->groups.emplace(p.get(), rule).second)
        return absl::InvalidArgumentError(absl::StrCat(what, ": parameter '", p->name, "' is in two groups"));
    }
    lua_settop(L, list);
  }
  return absl::OkStatus();
}

Status ReadTrainSpec(lua_State* L, TrainSpec* spec) {
  RETURN_IF_ERROR(
      CheckFields(L, 1, "build_train",
                  {"name", "forward", "inputs", "parameters", "network", "optimizer", "accumulate", "clip", "grad_norm",
                   "gradients", "ema", "loss_scale", "amp", "aggregate", "shard", "heed_cells"}));
  ASSIGN_OR_RETURN(spec->name, FieldString(L, 1, "name", "train"));
  lua_getfield(L, 1, "inputs");
  ASSIGN_OR_RETURN(spec->inputs, ReadInputSpecs(L, -1, "build_train"));
  lua_getfield(L, 1, "parameters");
  ASSIGN_OR_RETURN(spec->parameters, ReadParameters(L, -1, "build_train: parameters"));
  if (spec->parameters.empty())
    return absl::InvalidArgumentError("build_train: there is no parameter to train (requires_grad of all is false?)");
  for (const ParameterHandle& p : spec->parameters) {
    if (!IsFloat(p->type.dtype))
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", p->name, "' is ", ToString(p->type), ": only float parameters can be trained"));
  }
  lua_getfield(L, 1, "network");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(spec->network, ReadParameters(L, -1, "build_train: network"));
  }
  lua_getfield(L, 1, "optimizer");
  RETURN_IF_ERROR(ReadOptimizerRule(L, lua_gettop(L), &spec->rule));
  RETURN_IF_ERROR(ReadGroups(L, lua_gettop(L), spec));
  ASSIGN_OR_RETURN(spec->history, FieldHistory(L, lua_gettop(L), "optimizer"));
  ASSIGN_OR_RETURN(spec->accumulate, FieldInt(L, 1, "accumulate", 1));
  if (spec->accumulate < 1)
    return absl::InvalidArgumentError(absl::StrCat("accumulate is ", spec->accumulate, ", expected 1 or more"));
  for (const InputSpec& input : spec->inputs) {
    if (spec->accumulate > 1 && (input.type.rank() == 0 || input.type.shape[0] % spec->accumulate != 0)) {
      return absl::InvalidArgumentError(absl::StrCat("accumulate = ", spec->accumulate,
                                                     " does not divide the batch of column '", input.name, "', ",
                                                     ToString(input.type)));
    }
  }
  ASSIGN_OR_RETURN(spec->grad_norm, FieldBool(L, 1, "grad_norm", false));
  ASSIGN_OR_RETURN(spec->gradients, FieldBool(L, 1, "gradients", false));
  ASSIGN_OR_RETURN(spec->ema, FieldNumber(L, 1, "ema", 0));
  ASSIGN_OR_RETURN(spec->loss_scale, FieldBool(L, 1, "loss_scale", false));
  ASSIGN_OR_RETURN(spec->aggregation, ReadAggregation(L, 1, &spec->shards));
  lua_getfield(L, 1, "clip");
  if (!lua_isnil(L, -1)) {
    const int clip = lua_gettop(L);
    RETURN_IF_ERROR(CheckFields(L, clip, "clip", {"kind", "value"}));
    ASSIGN_OR_RETURN(spec->clip, FieldString(L, clip, "kind", "norm"));
    ASSIGN_OR_RETURN(spec->clip_value, FieldNumber(L, clip, "value", 0));
    if (spec->clip != "norm" && spec->clip != "value")
      return absl::InvalidArgumentError(absl::StrCat("clip: kind is '", spec->clip, "', expected norm or value"));
    if (!(spec->clip_value > 0))
      return absl::InvalidArgumentError(absl::StrCat("clip: value is ", spec->clip_value, ", expected more than 0"));
  }
  return absl::OkStatus();
}

// The dtype of mixed precision, from the field `amp`; none where it is nil.
StatusOr<absl::optional<DType>> ReadAmp(lua_State* L) {
  const StackGuard guard(L);
  lua_getfield(L, 1, "amp");
  if (lua_isnil(L, -1)) return absl::optional<DType>();
  ASSIGN_OR_RETURN(const DType amp, ReadDType(L, -1, "amp"));
  if (amp != DType::kBF16 && amp != DType::kF16)
    return absl::InvalidArgumentError(absl::StrCat("amp is ", LongName(amp), ", expected bfloat16 or float16"));
  return absl::make_optional(amp);
}

// The field `shard` of the table at 1; none where it is nil.
StatusOr<absl::optional<ShardOptions>> ReadShard(lua_State* L) {
  const StackGuard guard(L);
  lua_getfield(L, 1, "shard");
  if (lua_isnil(L, -1)) return absl::optional<ShardOptions>();
  const int at = lua_gettop(L);
  RETURN_IF_ERROR(CheckFields(
      L, at, "shard",
      {"stages", "feeds", "dataset", "search", "memory_bytes", "load_file", "save_file", "optimizer_bytes",
       "optimizer_level", "strategies", "bucket_bytes", "segments", "scatter_bytes", "gather_bytes", "fp32_sync"}));
  ShardOptions o;
  ASSIGN_OR_RETURN(o.stages, FieldInt(L, at, "stages", o.stages));
  ASSIGN_OR_RETURN(o.feeds, FieldInt(L, at, "feeds", o.feeds));
  ASSIGN_OR_RETURN(o.search, FieldString(L, at, "search", o.search));
  ASSIGN_OR_RETURN(o.memory_bytes, FieldInt(L, at, "memory_bytes", o.memory_bytes));
  ASSIGN_OR_RETURN(o.load_file, FieldString(L, at, "load_file", o.load_file));
  ASSIGN_OR_RETURN(o.save_file, FieldString(L, at, "save_file", o.save_file));
  ASSIGN_OR_RETURN(o.optimizer_bytes, FieldInt(L, at, "optimizer_bytes", o.optimizer_bytes));
  ASSIGN_OR_RETURN(o.optimizer_level, FieldInt(L, at, "optimizer_level", o.optimizer_level));
  ASSIGN_OR_RETURN(o.fp32_sync, FieldBool(L, at, "fp32_sync", o.fp32_sync));
  ASSIGN_OR_RETURN(o.dataset, FieldString(L, at, "dataset", o.dataset));
  ASSIGN_OR_RETURN(o.buckets, ReadBucketRule(L, at, "shard"));
  ASSIGN_OR_RETURN(o.scatter_bytes, FieldInt(L, at, "scatter_bytes", o.scatter_bytes));
  ASSIGN_OR_RETURN(o.gather_bytes, FieldInt(L, at, "gather_bytes", o.gather_bytes));
  lua_getfield(L, at, "strategies");
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(std::string name, FieldString(L, -1, "name", ""));
    ASSIGN_OR_RETURN(std::string text, FieldString(L, -1, "strategy", ""));
    o.strategies.push_back({std::move(name), std::move(text)});
    lua_pop(L, 1);
  }
  return absl::make_optional(std::move(o));
}

// Gives the rank's view the table's options of sharding; whether there are any.
StatusOr<bool> ConfigureView(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const absl::optional<ShardOptions> options, ReadShard(L));
  if (!options) return false;
  RankState& state = session.state();
  GlobalView::Place place;
  place.rank = state.rank;
  place.ranks = state.ranks;
  place.groups = state.groups.get();
  place.planning = session.options().verb == "plan";
  for (const auto& [name, value] : session.options().flags) {
    if (name == "cluster") place.cluster_file = std::get<std::string>(value);
    if (name == "plan_device") place.device = std::get<std::string>(value);
  }
  RETURN_IF_ERROR(GlobalView::Configure(place, *options, DumpsOf(session), &state.view));
  return true;
}

// Pushes a graph.
int PushStep(lua_State* L, StepGraph step) {
  auto traced = std::make_shared<TracedGraph>();
  static_cast<StepGraph&>(*traced) = std::move(step);
  PushObject<std::shared_ptr<TracedGraph>>(L, std::move(traced));
  return 1;
}

// The function at `index`, which the trace at hand is made by.
ForwardFn Forward(lua_State* L, Session& session, int index, const std::string& name) {
  return [L, &session, index, name](const std::vector<Value>& columns) {
    return CallTraced(L, session, index, columns, name);
  };
}

// Of build_train's table at 1, but for `shard`.
StatusOr<TrainSpec> ReadStep(lua_State* L) {
  TrainSpec spec;
  RETURN_IF_ERROR(ReadTrainSpec(L, &spec));
  ASSIGN_OR_RETURN(spec.amp, ReadAmp(L));
  for (const char* option :
       {"denormals", "reference_kernels", "vector_products", "conv_allow_tf32", "matmul_allow_tf32"})
    absl::StrAppend(&spec.context, "context.", option, " ", OptionBool(L, option), "\n");
  return spec;
}

// Pushes the graph and the names of the parameters that no gradient reaches.
int PushTrainGraph(lua_State* L, TrainGraph made) {
  PushStep(L, std::move(made.step));
  lua_newtable(L);
  for (size_t i = 0; i < made.idle.size(); ++i) {
    PushString(L, made.idle[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  return 2;
}

StatusOr<int> BuildTrain(lua_State* L, Session& session) {
  if (session.trace != nullptr) return absl::FailedPreconditionError("build_train inside a trace");
  ASSIGN_OR_RETURN(TrainSpec spec, ReadStep(L));
  ASSIGN_OR_RETURN(spec.sharded, ConfigureView(L, session));
  lua_settop(L, 1);
  lua_getfield(L, 1, "forward");
  TraceScope scope(session, spec.name, /*training=*/true);
  ASSIGN_OR_RETURN(const bool heeds, FieldBool(L, 1, "heed_cells", false));
  if (heeds) scope.trace().HeedCells();
  ASSIGN_OR_RETURN(TrainGraph made,
                   BuildTrainGraph(session.state(), scope.trace(), spec, Forward(L, session, 2, spec.name)));
  return PushTrainGraph(L, std::move(made));
}

// core.build_steps(name, list): tables as build_train takes, each with the name of its step.
StatusOr<int> BuildSteps(lua_State* L, Session& session) {
  if (session.trace != nullptr) return absl::FailedPreconditionError("build_steps inside a trace");
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "build_steps: name"));
  lua_settop(L, 2);
  lua_remove(L, 1);
  const int n = lua_type(L, 1) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, 1)) : 0;
  if (n == 0) return absl::InvalidArgumentError(absl::StrCat("build_steps: expected a list, got ", Describe(L, 1)));
  if (!lua_checkstack(L, n + 16)) return absl::ResourceExhaustedError("Lua's stack is full");
  std::vector<NamedStep> steps(static_cast<size_t>(n));
  bool heeds = false;
  for (int i = 1; i <= n; ++i) {
    NamedStep& step = steps[static_cast<size_t>(i) - 1];
    lua_rawgeti(L, 1, i);
    lua_insert(L, 1);  // the readers expect it there
    ASSIGN_OR_RETURN(step.spec, ReadStep(L));
    lua_getfield(L, 1, "shard");
    step.spec.sharded = !lua_isnil(L, -1);
    ASSIGN_OR_RETURN(heeds, FieldBool(L, 1, "heed_cells", false));
    lua_settop(L, i + 1);  // the table, the list, and the functions of the steps before
    lua_getfield(L, 1, "forward");
    lua_remove(L, 1);
    step.name = step.spec.name;
    step.forward = Forward(L, session, i + 1, step.name);
  }
  TraceScope scope(session, name, /*training=*/true);
  if (heeds) scope.trace().HeedCells();
  ASSIGN_OR_RETURN(TrainGraph made, BuildStepsGraph(session.state(), scope.trace(), steps));
  return PushTrainGraph(L, std::move(made));
}

// core.build_update: the optimizer's update alone, of gradients that are the graph's inputs in the parameters' order.
StatusOr<int> BuildUpdate(lua_State* L, Session& session) {
  if (session.trace != nullptr) return absl::FailedPreconditionError("build_update inside a trace");
  TrainSpec spec;
  RETURN_IF_ERROR(CheckFields(L, 1, "build_update", {"name", "inputs", "parameters", "optimizer"}));
  RETURN_IF_ERROR(ReadTrainSpec(L, &spec));
  lua_settop(L, 1);
  TraceScope scope(session, spec.name, /*training=*/true);
  ASSIGN_OR_RETURN(StepGraph step, BuildUpdateGraph(session.state(), scope.trace(), spec));
  return PushStep(L, std::move(step));
}

// The error of the first reshape that gives the batch the recipe's own size, with its line; empty: there is none. The
// graph was traced for a batch of `rows`, no factor of `own`, the recipe's; its trace may have ended by an error.
std::string FixedBatch(const Graph& graph, int64_t rows, int64_t own) {
  for (const Node& n : graph.nodes) {
    if (n.op->name != "reshape") continue;
    const TensorType &from = graph.TypeOf(n.inputs[0]), &to = n.outputs[0];
    if (from.rank() == 0 || to.rank() == 0 || from.shape[0] != rows || to.shape[0] != own) continue;
    const Location* at = n.location.get();
    return absl::StrCat(at == nullptr || at->file.empty() ? "" : absl::StrCat(at->file, ":", at->line, ": "),
                        "export: this reshape makes ", ToString(to), " of ", ToString(from), ": it fixes the batch at ",
                        own, " rows, and the model is for any number; fix: give -1 or x.shape[1] for the rows");
  }
  return "";
}

// A graph that is traced for `rows` rows, where the recipe's batches have `own`. `traced`: how that ended.
Status CheckAnyBatch(const Graph& graph, const Status& traced, int64_t rows, int64_t own) {
  // Batches of one row say nothing: a reshape to one row is usual.
  if (traced.ok() && own == 1) return absl::OkStatus();
  if (const std::string fixed = FixedBatch(graph, rows, own); !fixed.empty()) return absl::InvalidArgumentError(fixed);
  if (traced.ok()) return absl::OkStatus();
  return absl::Status(traced.code(),
                      absl::StrCat(traced.message(), "; export traces the network with ", rows,
                                   " rows, since the model is for any number: where the recipe says its batch size of ",
                                   own, ", give -1 or x.shape[1]"));
}

StatusOr<int> BuildEval(lua_State* L, Session& session) {
  if (session.trace != nullptr) return absl::FailedPreconditionError("build_eval inside a trace");
  RETURN_IF_ERROR(
      CheckFields(L, 1, "build_eval", {"name", "forward", "inputs", "outputs", "amp", "shard", "history", "own_rows"}));
  EvalGraphSpec spec;
  ASSIGN_OR_RETURN(spec.sharded, ConfigureView(L, session));
  ASSIGN_OR_RETURN(spec.name, FieldString(L, 1, "name", spec.name));
  lua_getfield(L, 1, "inputs");
  ASSIGN_OR_RETURN(spec.inputs, ReadInputSpecs(L, -1, "build_eval"));
  ASSIGN_OR_RETURN(spec.amp, ReadAmp(L));
  ASSIGN_OR_RETURN(spec.averages, FieldHistory(L, 1, "build_eval"));
  ASSIGN_OR_RETURN(const int64_t own_rows, FieldInt(L, 1, "own_rows", 0));
  lua_settop(L, 1);
  lua_getfield(L, 1, "forward");
  TraceScope scope(session, spec.name, /*training=*/false);
  const ForwardFn forward = Forward(L, session, 2, spec.name);
  // The names of outputs are known when the forward pass has been traced.
  const auto named = [&](const std::vector<Value>& columns) -> StatusOr<std::vector<Value>> {
    ASSIGN_OR_RETURN(std::vector<Value> results, forward(columns));
    const StackGuard guard(L);
    lua_getfield(L, 1, "outputs");
    for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
      lua_rawgeti(L, -1, i);
      ASSIGN_OR_RETURN(std::string output, ReadString(L, -1, absl::StrCat("build_eval: outputs[", i, "]")));
      spec.outputs.push_back(std::move(output));
      lua_pop(L, 1);
    }
    return results;
  };
  StatusOr<StepGraph> step = BuildEvalGraph(session.state(), scope.trace(), spec, named);
  if (own_rows > 0 && !spec.inputs.empty() && spec.inputs[0].type.rank() > 0) {
    const int64_t rows = spec.inputs[0].type.shape[0];
    RETURN_IF_ERROR(CheckAnyBatch(step.ok() ? step->graph : scope.trace().g().graph(), step.status(), rows, own_rows));
  }
  RETURN_IF_ERROR(step.status());
  return PushStep(L, *std::move(step));
}

// core.of_shapes(graphs, shares)
StatusOr<int> OfShapes(lua_State* L, Session&) {
  const int n = lua_type(L, 1) == LUA_TTABLE ? static_cast<int>(lua_objlen(L, 1)) : 0;
  if (n == 0) return absl::InvalidArgumentError(absl::StrCat("of_shapes: expected graphs, got ", Describe(L, 1)));
  if (lua_type(L, 2) != LUA_TTABLE || static_cast<int>(lua_objlen(L, 2)) != n)
    return absl::InvalidArgumentError(absl::StrCat("of_shapes: expected ", n, " shares, got ", Describe(L, 2)));
  StepGraph joined;
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, 1, i);
    const auto* graph = ToObject<std::shared_ptr<TracedGraph>>(L, -1);
    if (graph == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("of_shapes: expected a Graph, got ", Describe(L, -1)));
    lua_rawgeti(L, 2, i);
    StepGraph shape = **graph;
    ASSIGN_OR_RETURN(shape.share, ReadNumber(L, -1, "of_shapes: shares"));
    lua_pop(L, 2);
    if (i == 1)
      joined = std::move(shape);
    else
      joined.other_shapes.push_back(std::move(shape));
  }
  return PushStep(L, std::move(joined));
}

// core.use_average(parameter, history)
StatusOr<int> UseAverage(lua_State* L, Session& session) {
  const auto* p = ToObject<ParameterHandle>(L, 1);
  if (p == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("use_average: expected a Parameter, got ", Describe(L, 1)));
  lua_createtable(L, 0, 1);
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "history");
  ASSIGN_OR_RETURN(const auto history, FieldHistory(L, lua_gettop(L), "use_average"));
  RankState& state = session.state();
  const ParameterHandle average = AverageOf(state, history, **p);
  if (average == nullptr) return 0;  // nothing has trained it
  const GlobalView::Sharded* const sharded = state.view == nullptr ? nullptr : state.view->Find(average->key);
  if (sharded != nullptr && !sharded->part.all()) {
    return absl::FailedPreconditionError(
        absl::StrCat("use_averages: ranks have parts of '", (*p)->name,
                     "': save a checkpoint, `mslua eval` and the other commands take its averages"));
  }
  ASSIGN_OR_RETURN(const Tensor value, BorrowValue(state, *average));
  ASSIGN_OR_RETURN(const Tensor converted, CastTensor(session.allocator(), value, (*p)->type.dtype));
  RETURN_IF_ERROR(SetValue(state, **p, converted));
  return 0;
}

// core.valid_mask(n): 1 for the rows of the batch that count, 0 for padding; f32[n]. Outside an eval all count.
StatusOr<int> ValidMask(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t n, ReadInt(L, 1, "valid_mask: n"));
  if (n < 0) return absl::InvalidArgumentError("valid_mask: expected a size");
  if (session.trace == nullptr) return absl::FailedPreconditionError("valid_mask: only while a graph is traced");
  GraphBuilder& g = session.trace->g();
  Value mask;
  if (session.trace->training()) {
    mask = g.Constant(1, DType::kF32, {n});
  } else {
    const Value rows = g.Op("iota", {}, {{"size", n}, {"dtype", DType::kI32}});
    mask = Cast(g, Elementwise(g, "less", {rows, session.trace->ScalarInput("valid", DType::kI32)}), DType::kF32);
  }
  RETURN_IF_ERROR(session.trace->Check());
  PushValue(L, *session.trace, mask);
  return 1;
}

}  // namespace

void OpenTraining(lua_State* L) {
  SetFunctions(L, {{"build_train", Entry<BuildTrain>},
                   {"build_steps", Entry<BuildSteps>},
                   {"build_update", Entry<BuildUpdate>},
                   {"build_eval", Entry<BuildEval>},
                   {"of_shapes", Entry<OfShapes>},
                   {"use_average", Entry<UseAverage>},
                   {"valid_mask", Entry<ValidMask>}});
}

}  // namespace mslua
