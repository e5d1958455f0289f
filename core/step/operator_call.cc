#include "core/step/operator_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/op/marks.h"
#include "core/sharding/sharding.h"
#include "core/sharding/strategy.h"
#include "core/step/mixed_precision.h"

namespace mslua {
namespace {

// Attributes that say how the compiler shards an operator: kept in every mode, without effect where nothing is sharded.
struct CompilerAttrs {
  std::string in_strategy, out_strategy;
  bool cross_batch = false;
};

CompilerAttrs TakeCompilerAttrs(RankState& state, const Trace& trace, const OpDef& op, Attrs* attrs) {
  CompilerAttrs wishes;
  GlobalView* const view = trace.sharded() ? state.view.get() : nullptr;
  if (const std::string* own = mark::kUserStrategy.Find(*attrs)) {
    wishes.in_strategy = *own;
  } else if (view != nullptr) {
    const auto& at = trace.g().location();
    wishes.in_strategy = view->StrategyOf(absl::StrCat(at ? at->scope : "", "/", UserName(op)), at ? at->line : 0);
  }
  wishes.out_strategy = mark::kOutStrategy.GetOr(*attrs, "");
  if (const bool* own = mark::kOwnBatch.Find(*attrs)) wishes.cross_batch = *own;
  mark::kUserStrategy.Erase(*attrs);
  mark::kOutStrategy.Erase(*attrs);
  mark::kOwnBatch.Erase(*attrs);
  return view != nullptr ? wishes : CompilerAttrs();
}

// Shards the results of a call as its out_strategy says: the first ones, where it has fewer entries than there are.
Status ShardResults(Trace& trace, const Mesh& mesh, const OpDef& op, const std::string& text,
                    std::vector<Value>* outputs) {
  GraphBuilder& g = trace.g();
  ASSIGN_OR_RETURN(Strategy parts, ParseStrategy(text));
  if (!trace.training()) FitTo(g.graph(), *outputs, &parts);
  const std::string what = absl::StrCat(UserName(op), ": out_strategy ", text);
  if (parts.size() > outputs->size())
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", parts.size(), " entries, the operator has ", outputs->size(), " outputs"));
  for (size_t o = 0; o < parts.size(); ++o) {
    RETURN_IF_ERROR(CheckParts(mesh, what, absl::StrCat("output ", o + 1), g.TypeOf((*outputs)[o]), parts[o]));
    (*outputs)[o] = ShardAs(g, (*outputs)[o], parts[o]);
  }
  return g.status();
}

// Values that a call takes more than once, as values of their own from the second place on: each operand has its entry
// of a strategy.
void SeparateOperands(GraphBuilder& g, std::vector<Value>* values) {
  for (size_t i = 1; i < values->size(); ++i) {
    Value& v = (*values)[i];
    if (std::find(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(i), v) ==
        values->begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    const Shape shape = g.TypeOf(v).shape;
    v = g.Op("reshape", {v}, {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
  }
}

// An error, which names the call, where a node that it became cannot be sharded by its part of the call's strategy.
Status CheckStrategy(const Graph& graph, const Mesh& mesh, const OpDef& op, const std::string& text, size_t first) {
  for (size_t i = first; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    const std::string* const own = mark::kUserStrategy.Find(n.attrs);
    if (own == nullptr || n.op->name == op.name) continue;
    ASSIGN_OR_RETURN(const Strategy parts, ParseStrategy(*own));
    ASSIGN_OR_RETURN(const NodeRule rule, RuleOf(graph, n));
    const Status fits = FactorParts(mesh, graph, n, rule, parts).status();
    if (fits.ok()) continue;
    absl::string_view problem = fits.message();
    if (const size_t at = problem.find(UserName(*n.op)); at != problem.npos) problem.remove_prefix(at);
    return absl::InvalidArgumentError(absl::StrCat(UserName(op), ": strategy ", text, ": ", UserName(op),
                                                   " is computed by other operators, and one of them cannot be "
                                                   "sharded so: ",
                                                   problem));
  }
  return absl::OkStatus();
}

// What a call's attributes ask of the nodes that it became, [first, end of the graph).
Status Apply(const CompilerAttrs& wishes, RankState& state, Trace& trace, const OpDef& op, size_t first,
             const std::vector<Value>& operands, std::vector<Value>* outputs) {
  GraphBuilder& g = trace.g();
  if (!wishes.in_strategy.empty()) {
    ASSIGN_OR_RETURN(Strategy parts, ParseStrategy(wishes.in_strategy));
    if (!trace.training()) FitTo(g.graph(), operands, &parts);
    if (op.random) parts.emplace_back();  // the step, which users do not give
    RETURN_IF_ERROR(PinStrategy(g.graph(), first, operands, parts, UserName(op)));
    if (op.body) RETURN_IF_ERROR(CheckStrategy(g.graph(), state.view->mesh(), op, wishes.in_strategy, first));
  }
  for (size_t i = first; i < g.graph().nodes.size() && wishes.cross_batch; ++i) {
    Node& n = g.graph().nodes[i];
    if (n.op->own_batch != OwnBatch::kNone)
      mark::kCrossBatch.Set(n.attrs, std::string(op.own_batch == OwnBatch::kMean ? "mean" : "sum"));
  }
  if (wishes.out_strategy.empty()) return absl::OkStatus();
  return ShardResults(trace, state.view->mesh(), op, wishes.out_strategy, outputs);
}

}  // namespace

Status CheckElementTypes(const OpDef& op, size_t n, const std::function<TensorType(size_t)>& type_at,
                         const std::function<bool(size_t)>& is_parameter) {
  size_t first = n;
  for (size_t i = 0; i < n && !op.inputs.empty(); ++i) {
    if (InputAt(op, i).type != TypeClass::kT) continue;
    if (first == n) first = i;
    const TensorType a = type_at(first), b = type_at(i);
    if (a.dtype == b.dtype) continue;
    // Floats hold integers, and more bytes fewer, not the other way round.
    const bool to_first = IsFloat(a.dtype) == IsFloat(b.dtype) ? SizeOf(a.dtype) >= SizeOf(b.dtype) : IsFloat(a.dtype);
    const auto name = [&](size_t k) {
      const InputDef& input = InputAt(op, k);
      return &InputAt(op, first) == &InputAt(op, i) ? absl::StrCat(input.name, k) : input.name;
    };
    std::string problem = absl::StrCat(name(first), " is ", ToString(a), " and ", name(i), " is ", ToString(b),
                                       ": element types differ, and none is converted by itself; ");
    const size_t converted = to_first ? i : first, kept = to_first ? first : i;
    if (is_parameter(converted) && !is_parameter(kept) && IsFloat(type_at(converted).dtype)) {
      const char* const type = LongName(type_at(converted).dtype);
      absl::StrAppend(&problem, name(converted), " is a parameter: convert ", name(kept), " with :astype(ms.", type,
                      "), or the column of the dataset with TypeCast(ms.", type, ")");
    } else {
      absl::StrAppend(&problem, "convert ", name(converted), " with :astype(ms.", LongName(type_at(kept).dtype), ")");
    }
    return OpError(op, problem);
  }
  return absl::OkStatus();
}

std::vector<Value> EmitOperator(GraphBuilder& g, const OpDef& op, const std::vector<Value>& values, Attrs attrs) {
  if (Broadcasts(op) && values.size() == op.inputs.size()) return {Elementwise(g, op.name, values, std::move(attrs))};
  return g.OpMulti(op.name, values, std::move(attrs));
}

StatusOr<std::vector<Value>> CallOperator(RankState& state, Trace& trace, const OpDef& op, std::vector<Value> values,
                                          const std::vector<bool>& numbers, Attrs attrs) {
  GraphBuilder& g = trace.g();
  absl::optional<DType> result;
  if (trace.amp().has_value()) result = MixTypes(trace, op, numbers, &values);
  RETURN_IF_ERROR(CheckElementTypes(
      op, values.size(), [&](size_t i) { return g.TypeOf(values[i]); },
      [&](size_t i) { return g.IsParameter(values[i]); }));
  const CompilerAttrs wishes = TakeCompilerAttrs(state, trace, op, &attrs);
  if (!wishes.in_strategy.empty()) SeparateOperands(g, &values);
  const size_t first = g.graph().nodes.size();
  std::vector<Value> outputs = EmitOperator(g, op, values, std::move(attrs));
  if (g.status().ok()) g.Fail(Apply(wishes, state, trace, op, first, values, &outputs));
  for (Value& v : outputs) {
    const DType dtype = g.status().ok() ? g.TypeOf(v).dtype : DType::kBool;
    if (result && (dtype == DType::kF32 || dtype == *trace.amp())) v = Cast(g, v, *result);
  }
  RETURN_IF_ERROR(trace.Check());
  return outputs;
}

}  // namespace mslua
