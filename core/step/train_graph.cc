#include "core/step/train_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/autodiff/gradient.h"
#include "core/graph/gradient_marks.h"
#include "core/op/marks.h"
#include "core/sharding/micro_batches.h"
#include "core/step/located_status.h"
#include "core/step/optimizer_state.h"
#include "core/step/sync_type.h"
#include "core/step/table_rows.h"
#include "core/train/histograms_hook.h"
#include "core/train/trainer.h"

namespace mslua {
namespace {

// Results of a function in mixed precision as the caller knows them: f32.
void Widen(Trace& trace, std::vector<Value>* results) {
  if (!trace.amp() || !trace.g().status().ok()) return;
  for (Value& v : *results) {
    if (trace.g().TypeOf(v).dtype == *trace.amp()) v = Cast(trace.g(), v, DType::kF32);
  }
}

// Whether every element of x is finite, as 1 or 0 in f32.
Value Finite(GraphBuilder& g, Value x) {
  const DType dtype = g.TypeOf(x).dtype;
  const double largest = dtype == DType::kF64    ? std::numeric_limits<double>::max()
                         : dtype == DType::kF16  ? 65504
                         : dtype == DType::kBF16 ? 0x1.FEp127
                                                 : static_cast<double>(std::numeric_limits<float>::max());
  const Value within = Elementwise(g, "less_equal", {g.Op("abs", {x}), g.Constant(largest, dtype)});
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < g.TypeOf(x).rank(); ++d) axes.push_back(d);
  const Value ones = Cast(g, within, DType::kF32);
  return axes.empty() ? ones : g.Op("reduce_min", {ones}, {{"axis", axes}, {"keep_dims", false}});
}

// x times numbers of f32 or f64, computed in x's type; in f32 for 16 bits, which would round the numbers too.
Value Scaled(GraphBuilder& g, Value x, const std::vector<Value>& factors) {
  const DType own = g.TypeOf(x).dtype, computed = ArithmeticType(own);
  x = Cast(g, x, computed);
  for (const Value factor : factors) x = Mul(g, x, Cast(g, factor, computed));
  return Cast(g, x, own);
}

// sqrt of the sum of the squares of all gradients, a scalar of spec.shared_type(); the same bits on all ranks, or the
// parameters that they share would drift apart. Each element counts once: a combined gradient as rank 0 has it, a slice
// of one once among the ranks that have it, and the gradients of layerwise_parallel parameters on every rank.
Value GlobalNorm(GraphBuilder& g, const TrainSpec& spec, const std::vector<Value>& gradients) {
  Value combined, slices, own;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Value d = Cast(g, gradients[i], ArithmeticType(g.TypeOf(gradients[i]).dtype));
    const ParameterData& p = *spec.parameters[i];
    std::vector<int64_t> axes;
    for (int64_t a = 0; a < g.TypeOf(d).rank(); ++a) axes.push_back(a);
    const Value squares = Cast(g, ReduceSum(g, Mul(g, d, d), axes, false), spec.shared_type());
    const bool is_own = spec.aggregation.on() && p.layerwise_parallel;
    Value& sum = spec.shards.Covers(p) ? slices : is_own ? own : combined;
    sum = sum.valid() ? Add(g, sum, squares) : squares;
  }
  if (!spec.aggregation.on()) return g.Op("sqrt", {combined});
  // Every rank's sums, one row a rank. Ranks add the same rows in the same order.
  const auto ranks = static_cast<int64_t>(spec.aggregation.ranks.size());
  const struct {
    Value sum;
    int64_t rows;  // of the first ranks, which together have every element once
  } parts[] = {{combined, 1}, {slices, static_cast<int64_t>(spec.shards.ranks.size())}, {own, ranks}};
  std::vector<Value> columns;
  for (const auto& part : parts) {
    if (part.sum.valid()) columns.push_back(Reshape(g, part.sum, {1}));
  }
  const auto width = static_cast<int64_t>(columns.size());
  const Value mine = width == 1 ? columns[0] : g.Op("concat", columns, {{"axis", int64_t{0}}});
  const Value all = Reshape(g, g.Op("all_gather", {mine}, {{"group", spec.aggregation.ranks}}), {ranks, width});
  Value total;
  int64_t column = 0;
  for (const auto& part : parts) {
    if (!part.sum.valid()) continue;
    const Value rows =
        g.Op("strided_slice", {all},
             {{"begin", std::vector<int64_t>{0, column}}, {"end", std::vector<int64_t>{part.rows, column + 1}}});
    const Value sum = ReduceSum(g, rows, {0, 1}, false);
    total = total.valid() ? Add(g, total, sum) : sum;
    ++column;
  }
  return g.Op("sqrt", {total});
}

// A gradient of the global view, marked as its parameter's; what is marked is summed over ranks in its own type.
// `micro`: it is one of those that micro-batches sum, in f32, before ranks do.
Value OfParameter(GraphBuilder& g, Value d, const GlobalView& view, const ParameterData& parameter, bool micro) {
  if (!d.valid()) return d;
  const Value sent = view.fp32_sync() || !micro ? ToSync(g, d, view.fp32_sync()) : d;
  if (view.fp32_sync()) d = sent;
  for (const Value v : {sent, d}) mark::kGradientOf.Set(g.graph().nodes[v.node].attrs, parameter.key);
  return d;
}

// Forward and backward of all micro-batches, one after the other; means of losses and gradients.
struct ForwardBackward {
  Value loss;
  std::vector<MicroBlock> blocks;
  std::vector<Value> extra, gradients;
  std::vector<bool> flows;  // for each parameter, whether any gradient reaches it
  std::vector<NamedRows> rows;
  std::string traced;  // the text of the first micro-batch, for ranks to compare
  std::shared_ptr<const Location> loss_location;
};

// The text of a graph's nodes from `from` on, with their numbers from there, and earlier ones' in the order of their
// first use: ranks may have other numbers, as updates of uneven slices take more nodes on some.
std::string Renumbered(absl::string_view text, size_t from) {
  std::string out;
  absl::flat_hash_map<size_t, size_t> earlier;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1, number = 0;
    if (text[at] == '%')
      while (end < text.size() && absl::ascii_isdigit(text[end])) number = number * 10 + (text[end++] - '0');
    const bool more = end + 1 < text.size() && text[end] == '.' && !absl::ascii_isdigit(text[end + 1]);
    if (end == at + 1 || more || (end < text.size() && (absl::ascii_isalpha(text[end]) || text[end] == '_'))) {
      out.append(text.data() + at, end - at);  // a name, "%1.weight", or another character
    } else if (number >= from) {
      absl::StrAppend(&out, "%", number - from);
    } else {
      absl::StrAppend(&out, "%earlier.", earlier.emplace(number, earlier.size()).first->second);
    }
    at = end;
  }
  return out;
}

// The graph's text, of its nodes those from `from` on, but for seeds, which ranks may have of their own.
std::string CommonText(const Graph& graph, size_t from) {
  Graph common = graph;
  for (Node& n : common.nodes) {
    if (n.attrs.Has("seed")) n.attrs.Set("seed", int64_t{0});
  }
  const std::string text = ToString(common);
  size_t at = 0;  // a line for the head, and one for each node
  for (size_t line = 0; from > 0 && line <= from; ++line) at = text.find('\n', at) + 1;
  return from > 0 ? Renumbered(text.substr(at), from) : text;
}

// A parameter that the network uses without owning it would silently stay as it is: a cell in a plain table, say.
Status CheckOwned(const TrainSpec& spec, Trace& trace) {
  if (!spec.network) return absl::OkStatus();
  for (const ParameterHandle& p : trace.used()) {
    const auto is = [&](const ParameterHandle& other) { return other == p; };
    if (p->kind != kParameter || !p->requires_grad || std::any_of(spec.network->begin(), spec.network->end(), is) ||
        std::any_of(spec.parameters.begin(), spec.parameters.end(), is))
      continue;
    const Graph& graph = trace.g().graph();
    ASSIGN_OR_RETURN(const Value value, trace.ParameterInput(p));
    const auto user = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
      return std::find(n.inputs.begin(), n.inputs.end(), value) != n.inputs.end();
    });
    const Status unowned = absl::InvalidArgumentError(absl::StrCat(
        "the network uses the parameter '", p->name, "' ", ToString(p->type),
        ", which is none of its own, so it would not be trained; assign its cell to a field of self or to an "
        "nn.CellList, not to a plain table or a local (or give the parameter requires_grad = false)"));
    return AtLine(unowned, user == graph.nodes.end() ? nullptr : user->location.get());
  }
  return absl::OkStatus();
}

// The names of the parameters that no gradient reaches. An error where it reaches none of them.
StatusOr<std::vector<std::string>> IdleParameters(const TrainSpec& spec, const ForwardBackward& result) {
  const std::vector<bool>& flows = result.flows;
  if (std::find(flows.begin(), flows.end(), true) == flows.end()) {
    const Status idle = absl::InvalidArgumentError(absl::StrCat(
        spec.name, ": no parameter gets a gradient: the loss depends on none of the ", spec.parameters.size(),
        " that the optimizer trains ('", spec.parameters[0]->name,
        "', ...), or only through operators without a gradient, such as ops.stop_gradient, ops.argmax or ops.equal"));
    return AtLine(idle, result.loss_location.get());
  }
  std::vector<std::string> idle;
  for (size_t i = 0; i < flows.size(); ++i) {
    if (!flows[i]) idle.push_back(spec.parameters[i]->name);
  }
  return idle;
}

// What a training step depends on besides its graph: a line for each parameter, and for the whole.
std::string OptionsText(const TrainSpec& spec) {
  std::string text = spec.context;
  for (const ParameterHandle& p : spec.parameters) {
    const auto group = spec.groups.find(p.get());
    const OptimizerRule& rule = group == spec.groups.end() ? spec.rule : group->second;
    absl::StrAppend(&text, "parameter ", p->key, " ", ToString(p->type), " optimizer ", ToString(rule),
                    " layerwise_parallel ", p->layerwise_parallel, " comm_fusion ", p->comm_fusion,
                    " parallel_optimizer ", p->parallel_optimizer, "\n");
  }
  const Aggregation& a = spec.aggregation;
  absl::StrAppend(&text, "accumulate_steps ", spec.accumulate, "\nclip ", spec.clip, " ", spec.clip_value,
                  spec.grad_norm ? "\ngrad_norm" : "", spec.gradients ? "\ngradients" : "", "\nema ", spec.ema,
                  "\nloss_scale ", spec.loss_scale, "\ngradients_mean ", a.mean, "\ngradient_fp32_sync ", a.fp32_sync,
                  "\nbuckets of ", a.buckets.bytes, " bytes, {", absl::StrJoin(a.buckets.segments, ", "),
                  "}\nslices among ", spec.shards.ranks.size(), " ranks, from ", spec.shards.threshold, " bytes, ",
                  spec.shards.accumulate ? "accumulated" : "once a step", "\n");
  return text;
}

// Every n-th row of a column, from row `micro` on. So a rank that has neighbouring rows of a batch has its share of
// each micro-batch.
Value MicroBatch(GraphBuilder& g, Value column, int64_t micro, int64_t n) {
  if (n == 1) return column;
  Shape rows = g.TypeOf(column).shape, split = rows;
  rows[0] /= n;
  split[0] /= n;
  split.insert(split.begin() + 1, n);
  std::vector<int64_t> begin(split.size(), 0), end(split.begin(), split.end()), strides(split.size(), 1);
  begin[1] = micro;
  end[1] = micro + 1;
  const Value part =
      g.Op("strided_slice", {Reshape(g, column, split)}, {{"begin", begin}, {"end", end}, {"strides", strides}});
  return g.Op("reshape", {part},
              {{"shape", std::vector<int64_t>(rows.begin(), rows.end())}, {mark::kRowsFirst.name, true}});
}

// What a pipeline stage reads of a parameter that another one keeps, and its gradient over micro-batches.
struct StageCopy {
  size_t parameter;
  Value value, gradient;
};

// Adds the copies of all parameters that are new.
void FindStageCopies(const Trace& trace, const TrainSpec& spec, std::vector<StageCopy>* copies) {
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    for (Value v : trace.StageCopies(*spec.parameters[i])) {
      const bool known =
          std::any_of(copies->begin(), copies->end(), [v](const StageCopy& copy) { return copy.value == v; });
      if (!known) copies->push_back({i, v, Value()});
    }
  }
}

// The sum of two gradients of one parameter, which are partial over the same ranks or over none.
Value AddGradients(GraphBuilder& g, Value a, Value b, const GlobalView& view, const ParameterData& parameter,
                   bool of_micro_batches) {
  Attrs attrs{{mark::kSum.name, true}};
  if (of_micro_batches) mark::kMicroSum.Set(attrs, true);
  return OfParameter(g, g.Op("add", {a, b}, std::move(attrs)), view, parameter, /*micro=*/true);
}

// The gradients of one micro-batch: of the parameters, then of `copies`.
StatusOr<std::vector<Value>> EmitBackward(Trace& trace, const TrainSpec& spec, const GlobalView* view, Value loss,
                                          Value scale, std::vector<StageCopy>* copies, ForwardBackward* sum) {
  GraphBuilder& g = trace.g();
  std::vector<Value> inputs;
  for (const ParameterHandle& p : spec.parameters) {
    ASSIGN_OR_RETURN(const Value v, trace.ParameterInput(p));
    inputs.push_back(v);
  }
  FindStageCopies(trace, spec, copies);
  for (const StageCopy& copy : *copies) inputs.push_back(copy.value);
  const auto here = static_cast<int32_t>(g.graph().nodes.size());
  const int64_t micro = sum->blocks.back().micro;
  sum->blocks.back().end = here;
  sum->blocks.push_back({here, here, micro, true});
  std::vector<bool> flows;
  ASSIGN_OR_RETURN(std::vector<Value> gradients,
                   Gradients(g, loss, inputs, scale, view != nullptr, &flows, &trace.custom_gradients()));
  sum->flows.resize(spec.parameters.size());
  for (size_t i = 0; i < flows.size(); ++i) {
    const size_t parameter = i < spec.parameters.size() ? i : (*copies)[i - spec.parameters.size()].parameter;
    sum->flows[parameter] = sum->flows[parameter] || flows[i];
  }
  return gradients;
}

// Adds the rows of tables that a micro-batch names to those of the ones before it.
void AddRows(GraphBuilder& g, const TrainSpec& spec, const std::vector<Value>& gradients, ForwardBackward* sum) {
  const bool first = sum->rows.empty();
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    NamedRows rows = RowsOf(g, gradients[i]);
    if (first)
      sum->rows.push_back(std::move(rows));
    else
      sum->rows[i] = BothRows(std::move(sum->rows[i]), rows);
  }
}

// Adds the gradients of a micro-batch to those of the ones before it.
void AddMicroBatch(Trace& trace, const TrainSpec& spec, const GlobalView* view, const std::vector<Value>& gradients,
                   std::vector<StageCopy>* copies, ForwardBackward* sum) {
  GraphBuilder& g = trace.g();
  for (size_t i = 0; i < copies->size(); ++i) {
    const ParameterData& p = *spec.parameters[(*copies)[i].parameter];
    const Value d = OfParameter(g, gradients[spec.parameters.size() + i], *view, p, /*micro=*/true);
    Value& all = (*copies)[i].gradient;
    all = all.valid() ? AddGradients(g, all, d, *view, p, true) : d;
  }
  const bool first = sum->gradients.empty();
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    Value d = gradients[i];
    // Sums over micro-batches, of which 16 bits may hold the mean alone, are f32.
    if (view == nullptr && spec.accumulate > 1) d = Cast(g, d, ArithmeticType(g.TypeOf(d).dtype));
    if (view != nullptr) d = OfParameter(g, d, *view, *spec.parameters[i], spec.accumulate > 1);
    if (first)
      sum->gradients.push_back(d);
    else if (view == nullptr)
      sum->gradients[i] = Add(g, sum->gradients[i], d);
    else
      sum->gradients[i] = AddGradients(g, sum->gradients[i], d, *view, *spec.parameters[i], true);
  }
}

// The mean over the micro-batches, without the loss scale, in the parameters' types.
void FinishGradients(GraphBuilder& g, const TrainSpec& spec, Value scale, ForwardBackward* sum) {
  const double share = 1.0 / static_cast<double>(spec.accumulate);
  if (spec.accumulate > 1) sum->loss = Mul(g, sum->loss, share);
  const DType type = spec.shared_type();
  std::vector<Value> factors = {g.Constant(share, type)};
  if (scale.valid()) {
    // The reciprocal of a scale above 2^126 is too small for f32: a part of it comes first.
    const Value large = g.Op("greater_equal", {scale, g.Constant(std::ldexp(1, 64), type)});
    const Value part = g.Op("select", {large, g.Constant(std::ldexp(1, -64), type), g.Constant(1, type)});
    factors = {part, Div(g, factors[0], Mul(g, scale, part))};
  }
  for (size_t i = 0; i < sum->gradients.size(); ++i) {
    Value& d = sum->gradients[i];
    if (spec.accumulate > 1 || scale.valid()) d = Scaled(g, d, factors);
    d = Cast(g, d, spec.parameters[i]->type.dtype);
  }
}

StatusOr<ForwardBackward> EmitForwardBackward(RankState& state, Trace& trace, const TrainSpec& spec,
                                              const ForwardFn& forward, const std::vector<Value>& columns,
                                              Value scale) {
  GraphBuilder& g = trace.g();
  const GlobalView* const view = spec.sharded ? state.view.get() : nullptr;
  ForwardBackward sum;
  std::vector<StageCopy> copies;
  // Updates of the steps before may be of this rank's part.
  const size_t text_from = trace.used().empty() ? 0 : g.graph().nodes.size();
  for (int64_t micro = 0; micro < spec.accumulate; ++micro) {
    const auto here = [&g] { return static_cast<int32_t>(g.graph().nodes.size()); };
    sum.blocks.push_back({here(), here(), micro, false});
    std::vector<Value> part;
    for (Value column : columns) part.push_back(MicroBatch(g, column, micro, spec.accumulate));
    ASSIGN_OR_RETURN(std::vector<Value> results, forward(part));
    Widen(trace, &results);
    const TensorType type = g.TypeOf(results[0]);
    if (type.rank() == 0 && !IsFloat(type.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat("expected a float loss, got ", LongName(type.dtype),
                                                     ", which has no gradient: compute it of float tensors, "
                                                     "x:astype(ms.float32) makes one"));
    }
    if (type.rank() != 0) {
      return absl::InvalidArgumentError(absl::StrCat("the loss should be a float scalar, got ", ToString(type),
                                                     ": reduce it with ops.ReduceMean, or give the recipe a loss"));
    }
    const Value seed = scale.valid() ? Cast(g, scale, type.dtype) : Value();
    ASSIGN_OR_RETURN(std::vector<Value> gradients, EmitBackward(trace, spec, view, results[0], seed, &copies, &sum));
    AddRows(g, spec, gradients, &sum);
    if (micro == 0 && state.ranks > 1) sum.traced = CommonText(g.graph(), text_from);
    const Value loss = Cast(g, results[0], type.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
    sum.loss = micro == 0 ? loss : Add(g, sum.loss, loss);
    sum.loss_location = g.NodeOf(results[0]).location;
    if (spec.shards.accumulate) ScatterGradients(g, spec.shards, spec.parameters, micro, &gradients);
    // Sums of different micro-batches are not to become one: all gradients would be kept for it.
    trace.PushRegion();
    AddMicroBatch(trace, spec, view, gradients, &copies, &sum);
    trace.PopRegion();
    sum.blocks.back().end = here();
    if (micro + 1 == spec.accumulate) sum.extra.assign(results.begin() + 1, results.end());
  }
  for (const StageCopy& copy : copies) {
    Value& d = sum.gradients[copy.parameter];
    d = AddGradients(g, d, copy.gradient, *view, *spec.parameters[copy.parameter], false);
    sum.rows[copy.parameter].reset();
  }
  FinishGradients(g, spec, scale, &sum);
  RETURN_IF_ERROR(trace.Check());
  return sum;
}

// Whether all ranks skip the step or none does. Aggregated gradients are the same on all of them.
Value OnAllRanks(GraphBuilder& g, const TrainSpec& spec, Value finite) {
  const bool own = std::any_of(spec.parameters.begin(), spec.parameters.end(), [&](const ParameterHandle& p) {
    return !spec.aggregation.Covers(*p) || spec.shards.Covers(*p);
  });
  if (!spec.aggregation.on() || !own) return finite;
  return g.Op("all_reduce", {finite}, {{"group", spec.aggregation.ranks}, {"op", std::string("min")}});
}

// A state tensor of the spec's optimizer as an input: of a slice of the parameter where ranks share its state.
StatusOr<Value> StateInput(RankState& state, Trace& trace, const TrainSpec& spec, const StateTensor& tensor,
                           const ParameterData& parameter) {
  const OptimizerShards& shards = spec.shards;
  const bool known = state.optimizer_states.contains(StateKey(state, spec.history, tensor.name, parameter.key));
  const ParameterHandle& held = StateOf(state, spec.history, tensor, parameter);
  if (!known && shards.Covers(parameter)) {
    held->slice = Part::Slice(parameter.type.elements(), shards.Begin(parameter.type), shards.Slice(parameter.type));
    held->replica = !shards.replicas.empty() && shards.replicas[0] != shards.ranks[shards.place];
  }
  if (held->slice.whole.empty() == shards.Covers(parameter)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state '", held->key.empty() ? held->name : held->key,
                     "' was made with another enable_parallel_optimizer: keep it for all trainings of an optimizer"));
  }
  return trace.ParameterInput(held);
}

// The parameter's next average, where the spec asks for it, as an output that replaces it.
Status EmitAverage(RankState& state, Trace& trace, const TrainSpec& spec, const ParameterData& parameter, Value next,
                   Value finite) {
  GraphBuilder& g = trace.g();
  if (spec.history != nullptr && spec.history->averaged > 0 && AverageOf(state, spec.history, parameter) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("ema: parameter '", parameter.name, "' has no average of the first ", spec.history->averaged,
                     " updates, in which it was not trained: train it from the beginning, or make a new optimizer"));
  }
  const ParameterHandle average = StateOf(state, spec.history, AverageTensor(parameter), parameter);
  ASSIGN_OR_RETURN(const Value before, trace.ParameterInput(average));
  const Value made = spec.loss_scale ? trace.ScalarInput(kUpdates, DType::kI64) : trace.Step();
  const Value share = EmitFormula(g, "(decay - 1) / expm1((made + 1) * log(decay))",
                                  {{"made", Cast(g, made, spec.shared_type())}}, {{"decay", spec.ema}});
  const DType computed = average->type.dtype;
  const Value after =
      EmitFormula(g, "before + share * (next - before)",
                  {{"before", before}, {"share", Cast(g, share, computed)}, {"next", Cast(g, next, computed)}}, {});
  g.Output(average->key, finite.valid() ? Elementwise(g, "select", {finite, after, before}) : after, average->key);
  return absl::OkStatus();
}

// This rank's part of the traced graph, `blocks` are its micro-batches.
StatusOr<StepGraph> PartOfRank(Trace& trace, GlobalView& view, bool feeds, std::vector<MicroBlock> blocks) {
  RETURN_IF_ERROR(trace.Check());
  StepGraph traced;
  traced.sharded = true;
  const StageTrace stages{view.stages(), trace.Stages(), std::move(blocks)};
  ASSIGN_OR_RETURN(Graph whole, trace.g().Finish());
  MarkMicroBatches(stages.blocks, &whole);
  RETURN_IF_ERROR(view.PinNamed(&whole));
  if (view.stages() > 1) {
    ASSIGN_OR_RETURN(whole, view.OfStage(whole, stages));
  }
  ASSIGN_OR_RETURN(traced.graph, view.OfRank(whole, feeds, trace.used()));
  for (const ParameterHandle& p : trace.used()) {
    if (view.stages() == 1 || traced.graph.FindInput(p->key) >= 0) traced.parameters.push_back(p);
  }
  return traced;
}

// The next values of all parameters and of the optimizer's state, as outputs that replace them; gives those of the
// parameters. Where `finite` is valid and false, everything stays as it was. `rows` are those that the step names of
// each parameter. stage_of(i) is the pipeline stage of parameter i.
StatusOr<std::vector<Value>> EmitUpdates(RankState& state, Trace& trace, const TrainSpec& spec,
                                         const std::vector<Value>& gradients, const std::vector<NamedRows>& rows,
                                         Value finite, const std::function<int(size_t)>& stage_of) {
  GraphBuilder& g = trace.g();
  const ParameterData* current = nullptr;  // whose state is asked for
  const OptimizerStep step = {
      g,
      // A step that a loss scale skips is no update: optimizers count those that are made.
      [&] { return spec.loss_scale ? trace.ScalarInput(kUpdates, DType::kI64) : trace.Step(); },
      [&](const std::string& name) { return trace.ScalarInput(name, spec.shared_type()); },
      [&](const StateTensor& tensor) { return StateInput(state, trace, spec, tensor, *current); }};
  Value concerned;  // elements of the parameter, by an update that is made
  // Where a step with infinite gradients is skipped, everything stays as it was.
  const auto keep = [&](Value next, Value old) {
    if (finite.valid()) next = Elementwise(g, "select", {finite, next, old});
    return concerned.valid() ? Elementwise(g, "select", {concerned, next, old}) : next;
  };
  std::vector<Value> updated;
  for (size_t i = 0; i < spec.parameters.size(); ++i) {
    const ParameterHandle& p = spec.parameters[i];
    const StageScope in(trace, stage_of(i));
    const auto own = spec.groups.find(p.get());
    const OptimizerRule& rule = own == spec.groups.end() ? spec.rule : own->second;
    const bool sharded = spec.shards.Covers(*p);
    const Value gradient = gradients[i];
    if (gradient.valid()) MarkGradient({p->key, gradient.output}, &g.graph().nodes[gradient.node]);
    ASSIGN_OR_RETURN(const Value whole, trace.ParameterInput(p));
    const Value old = sharded ? OwnSlice(g, spec.shards, whole) : whole;
    current = p.get();
    const std::vector<int64_t> group = sharded ? spec.shards.ranks : std::vector<int64_t>();
    ASSIGN_OR_RETURN(const Update update, EmitUpdate(step, rule, {p->name, p->type.shape, old, gradients[i], group}));
    concerned = UpdatedElements(g, rule, *p, rows[i], spec.aggregation, spec.shards);
    const Value next = keep(update.parameter, old);
    updated.push_back(next);
    for (const Update::State& next_state : update.states) {
      const std::string key = StateKey(state, spec.history, next_state.tensor.name, p->key);
      g.Output(key, keep(next_state.next, next_state.before), key);
    }
  }
  GatherSlices(g, spec.shards, spec.parameters, &updated);
  for (size_t i = 0; i < updated.size(); ++i) g.Output(spec.parameters[i]->key, updated[i], spec.parameters[i]->key);
  for (size_t i = 0; spec.ema > 0 && i < updated.size(); ++i) {
    const StageScope in(trace, stage_of(i));
    RETURN_IF_ERROR(EmitAverage(state, trace, spec, *spec.parameters[i], updated[i], finite));
  }
  return updated;
}

// The whole step's columns, as the trace's inputs.
StatusOr<std::vector<Value>> Columns(Trace& trace, const GlobalView* view, const std::vector<InputSpec>& inputs) {
  std::vector<Value> columns;
  std::vector<std::string> names;
  for (const InputSpec& input : inputs) {
    columns.push_back(trace.DataInput(input.name, view != nullptr ? view->Whole(input.type) : input.type));
    names.push_back(input.name);
  }
  if (view != nullptr) RETURN_IF_ERROR(view->PlaceColumns(trace.g(), names, &columns));
  return columns;
}

// Whether all gradients are finite, a bool that is the same on all ranks; also the output "finite".
Value OutputFinite(GraphBuilder& g, const TrainSpec& spec, const std::vector<Value>& gradients) {
  Value finite;
  for (Value d : gradients) finite = finite.valid() ? g.Op("minimum", {finite, Finite(g, d)}) : Finite(g, d);
  finite = OnAllRanks(g, spec, finite);
  g.Output("finite", finite);
  return g.Op("greater", {finite, g.Constant(0.5, DType::kF32)});
}

// Each gradient as an output, for histograms.
Status OutputGradients(GraphBuilder& g, const TrainSpec& spec, const std::vector<Value>& gradients) {
  const bool parts = std::any_of(spec.parameters.begin(), spec.parameters.end(), [&](const ParameterHandle& p) {
    return spec.shards.Covers(*p) || (spec.aggregation.on() && p->layerwise_parallel);
  });
  if (spec.sharded || parts) {
    return absl::InvalidArgumentError(
        "histograms: each rank has a part of the gradients here (semi_auto_parallel, auto_parallel, "
        "enable_parallel_optimizer or layerwise_parallel): leave out histograms.gradients");
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].valid()) g.Output(kGradientOutput + spec.parameters[i]->key, gradients[i]);
  }
  return absl::OkStatus();
}

void Clip(Trace& trace, const TrainSpec& spec, const std::string& suffix, const std::function<int(size_t)>& stage_of,
          std::vector<Value>* gradients) {
  GraphBuilder& g = trace.g();
  const Value norm = spec.clip == "norm" || spec.grad_norm ? GlobalNorm(g, spec, *gradients) : Value();
  if (norm.valid()) g.Output("grad_norm" + suffix, norm);
  if (spec.clip == "norm") {
    const Value factor = EmitFormula(g, "min(c / (norm + 1e-6), 1)", {{"norm", norm}}, {{"c", spec.clip_value}});
    for (size_t i = 0; i < gradients->size(); ++i) {
      const StageScope in(trace, stage_of(i));
      (*gradients)[i] = Scaled(g, (*gradients)[i], {factor});
    }
  } else if (spec.clip == "value") {
    for (Value& d : *gradients) d = EmitFormula(g, "max(min(dy, c), -c)", {{"dy", d}}, {{"c", spec.clip_value}});
  }
}

}  // namespace

namespace {

// Averages count the optimizer's updates from the first one.
Status CheckAverages(const TrainSpec& spec) {
  if (spec.ema == 0 || spec.history == nullptr) return absl::OkStatus();
  const OptimizerHistory& history = *spec.history;
  if (history.averaged < history.updates) {
    return absl::FailedPreconditionError(
        absl::StrCat("ema: the optimizer has made ", history.updates - history.averaged,
                     " updates without averages: give ema in each of its trainings, or make a new optimizer"));
  }
  if (history.averaged == 0 || history.ema == spec.ema) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("ema: the optimizer's averages have the decay ", history.ema,
                                                    ", this training asks for ", spec.ema,
                                                    ": give the same one, or make a new optimizer"));
}

// A whole step on the columns: forward, backward, update, and their outputs, whose names end with `suffix`.
struct EmittedStep {
  ForwardBackward result;
  std::vector<Value> updated;  // the next values of spec.parameters
};

StatusOr<EmittedStep> EmitStep(RankState& state, Trace& trace, const TrainSpec& spec, const ForwardFn& forward,
                               const std::vector<Value>& columns, const std::string& suffix) {
  RETURN_IF_ERROR(CheckAverages(spec));
  GlobalView* const view = spec.sharded ? state.view.get() : nullptr;
  GraphBuilder& g = trace.g();
  EmittedStep step;
  ForwardBackward& result = step.result;
  const Value scale = spec.loss_scale ? trace.ScalarInput("loss_scale", spec.shared_type()) : Value();
  ASSIGN_OR_RETURN(result, EmitForwardBackward(state, trace, spec, forward, columns, scale));
  RETURN_IF_ERROR(CheckOwned(spec, trace));
  g.SetLocation(nullptr);
  if (view != nullptr && view->stages() > 1)
    RETURN_IF_ERROR(view->SettleStages(g.graph(), {view->stages(), trace.Stages(), result.blocks}).status());
  // A parameter is updated in the pipeline stage that keeps it.
  const auto stage_of = [&](size_t i) { return view == nullptr ? kNoStage : view->OwnerOf(spec.parameters[i]->key); };

  g.Output("loss" + suffix, result.loss);
  if (!spec.shards.accumulate) ScatterGradients(g, spec.shards, spec.parameters, 0, &result.gradients);
  Aggregate(g, spec.aggregation, spec.shards, spec.parameters, &result.gradients);
  // Before they are clipped, which makes infinite gradients finite.
  const Value finite = spec.loss_scale ? OutputFinite(g, spec, result.gradients) : Value();
  if (spec.gradients) RETURN_IF_ERROR(OutputGradients(g, spec, result.gradients));
  Clip(trace, spec, suffix, stage_of, &result.gradients);
  for (size_t i = 0; i < result.extra.size(); ++i) g.Output(absl::StrCat("out", i + 1, suffix), result.extra[i]);
  ASSIGN_OR_RETURN(step.updated, EmitUpdates(state, trace, spec, result.gradients, result.rows, finite, stage_of));
  return step;
}

}  // namespace

StatusOr<TrainGraph> BuildTrainGraph(RankState& state, Trace& trace, const TrainSpec& spec, const ForwardFn& forward) {
  GlobalView* const view = spec.sharded ? state.view.get() : nullptr;
  trace.SetSharded(spec.sharded);
  if (spec.amp) trace.SetAmp(*spec.amp);
  ASSIGN_OR_RETURN(const std::vector<Value> columns, Columns(trace, view, spec.inputs));
  if (view != nullptr && view->stages() > 1) trace.SplitParametersByStage();
  ASSIGN_OR_RETURN(EmittedStep step, EmitStep(state, trace, spec, forward, columns, ""));
  trace.OutputAssigned();
  if (spec.aggregation.on())
    PlaceRandomRows(trace.g().graph(), static_cast<int64_t>(spec.aggregation.ranks.size()), state.rank);
  ForwardBackward& result = step.result;
  TrainGraph out;
  ASSIGN_OR_RETURN(out.step, view != nullptr ? PartOfRank(trace, *view, view->feeds() > 1, std::move(result.blocks))
                                             : FinishTrace(trace));
  if (!result.traced.empty()) {
    out.step.common =
        absl::StrCat(OptionsText(spec), "pipeline_stages ", view == nullptr ? 1 : view->stages(), "\n", result.traced);
  }
  out.step.clips_norm = spec.clip == "norm";
  out.step.ema = spec.ema;
  ASSIGN_OR_RETURN(out.idle, IdleParameters(spec, result));
  return out;
}

namespace {

// A parameter belongs to one optimizer.
Status CheckClaims(const std::vector<NamedStep>& steps) {
  std::map<const ParameterData*, const NamedStep*> claimed;
  for (const NamedStep& step : steps) {
    if (step.spec.sharded || step.spec.loss_scale) {
      return absl::InvalidArgumentError(
          "steps: several steps go with data parallel ranks, and without a loss scale: neither semi_auto_parallel, "
          "auto_parallel nor pipeline stages");
    }
    for (const ParameterHandle& p : step.spec.parameters) {
      const auto [at, added] = claimed.emplace(p.get(), &step);
      if (added) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("steps: parameter '", p->name, "' belongs to the steps '", at->second->name, "' and '",
                       step.name, "': one optimizer updates a parameter; give each step params = a pattern on names"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<TrainGraph> BuildStepsGraph(RankState& state, Trace& trace, const std::vector<NamedStep>& steps) {
  RETURN_IF_ERROR(CheckClaims(steps));
  GraphBuilder& g = trace.g();
  const TrainSpec& first = steps[0].spec;
  if (first.amp) trace.SetAmp(*first.amp);
  ASSIGN_OR_RETURN(const std::vector<Value> columns, Columns(trace, nullptr, first.inputs));
  TrainGraph out;
  std::string common;
  Value loss;
  for (const NamedStep& named : steps) {
    trace.PushScope(named.name);
    ASSIGN_OR_RETURN(const EmittedStep step,
                     EmitStep(state, trace, named.spec, named.forward, columns, "." + named.name));
    trace.PopScope();
    const ForwardBackward& result = step.result;
    ASSIGN_OR_RETURN(const std::vector<std::string> idle, IdleParameters(named.spec, result));
    out.idle.insert(out.idle.end(), idle.begin(), idle.end());
    const Value own = loss.valid() ? Cast(g, result.loss, g.TypeOf(loss).dtype) : result.loss;
    loss = loss.valid() ? Add(g, loss, own) : own;
    trace.Advance(named.spec.parameters, step.updated);
    if (!result.traced.empty()) absl::StrAppend(&common, named.name, "\n", OptionsText(named.spec), result.traced);
  }
  g.Output("loss", loss);
  std::vector<GraphOutput>& outputs = g.graph().outputs;
  std::rotate(outputs.begin(), outputs.end() - 1, outputs.end());  // the loss is the first one
  trace.OutputAssigned();
  if (first.aggregation.on())
    PlaceRandomRows(g.graph(), static_cast<int64_t>(first.aggregation.ranks.size()), state.rank);
  ASSIGN_OR_RETURN(out.step, FinishTrace(trace));
  out.step.common = std::move(common);
  out.step.ema = first.ema;
  out.step.clips_norm =
      std::any_of(steps.begin(), steps.end(), [](const NamedStep& step) { return step.spec.clip == "norm"; });
  return out;
}

StatusOr<StepGraph> BuildUpdateGraph(RankState& state, Trace& trace, const TrainSpec& spec) {
  std::vector<Value> gradients;
  for (const ParameterHandle& p : spec.parameters)
    gradients.push_back(trace.DataInput(absl::StrCat("gradient.", KeyOf(state, *p)), p->type));
  RETURN_IF_ERROR(trace.Check());
  // Whole gradients do not say which rows of a table were named.
  const std::vector<NamedRows> rows(gradients.size());
  RETURN_IF_ERROR(EmitUpdates(state, trace, spec, gradients, rows, Value(), [](size_t) { return kNoStage; }).status());
  return FinishTrace(trace);
}

StatusOr<StepGraph> BuildEvalGraph(RankState& state, Trace& trace, const EvalGraphSpec& spec,
                                   const ForwardFn& forward) {
  trace.SetSharded(spec.sharded);
  if (spec.amp) trace.SetAmp(*spec.amp);
  if (spec.averages != nullptr) {
    trace.ReadInstead([&](const ParameterData& p) { return AverageOf(state, spec.averages, p); });
  }
  std::vector<Value> columns;
  for (const InputSpec& input : spec.inputs) columns.push_back(trace.DataInput(input.name, input.type));
  ASSIGN_OR_RETURN(std::vector<Value> results, forward(columns));
  Widen(trace, &results);
  for (size_t i = 0; i < results.size(); ++i)
    trace.g().Output(i < spec.outputs.size() ? spec.outputs[i] : absl::StrCat("out", i + 1), results[i]);
  if (!spec.sharded) return FinishTrace(trace);
  const auto nodes = static_cast<int32_t>(trace.g().graph().nodes.size());
  return PartOfRank(trace, *state.view, /*feeds=*/false, {{0, nodes, 0, false}});
}

StatusOr<StepGraph> FinishTrace(Trace& trace) {
  RETURN_IF_ERROR(trace.Check());
  StepGraph traced;
  ASSIGN_OR_RETURN(traced.graph, trace.g().Finish());
  traced.parameters = trace.used();
  return traced;
}

}  // namespace mslua
