#include "core/ops/testing/op_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "core/base/rng.h"
#include "core/graph/testing/evaluate.h"
#include "core/ops/testing/sample_run.h"

namespace mslua::testing {
namespace {

Status Wrong(absl::string_view what) { return absl::InternalError(what); }

double Tolerance(DType t) {
  switch (t) {
    case DType::kF64:
      return 1e-9;
    case DType::kF32:
      return 2e-5;
    case DType::kF16:
      return 4e-3;
    case DType::kBF16:
      return 2e-2;
    default:
      return 0;
  }
}

// ------------------------------------------------------------------------------------------------------- gradient

using Inputs = std::vector<std::string>;

StatusOr<std::vector<std::string>> EvaluateTwice(const Graph& graph, const Inputs& inputs) {
  ASSIGN_OR_RETURN(auto first, EvaluateReference(graph, inputs));
  ASSIGN_OR_RETURN(const auto second, EvaluateReference(graph, inputs));
  if (first != second) return Wrong("two evaluations differ");
  return first;
}

double AsDouble(const std::string& bytes, size_t i = 0) {
  double v;
  std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
  return v;
}

// A graph with the inputs of a sample, the projections' weights among them, under construction.
class Projector {
 public:
  Projector(const OpDef& op, const Sample& sample) : op_(op), sample_(sample) {}

  // The operator on its inputs in f64 and the projection of its outputs; invalid when no output is f64.
  StatusOr<Value> Forward() {
    const std::vector<TensorType> types = InputTypes(op_, sample_, DType::kF64);
    for (size_t i = 0; i < types.size(); ++i) {
      const Memory m = MakeInput(op_, sample_, i, types[i]);
      x_.push_back(Input(types[i], m.bytes()));
      if (types[i].dtype == DType::kF64) wrt_.push_back(x_.back());
    }
    const std::vector<Value> y = g_.OpMulti(op_.name, x_, sample_.attrs);
    RETURN_IF_ERROR(g_.status());
    return Project(y);
  }

  // The sum of all elements of f64 values, each with a weight of its own.
  Value Project(const std::vector<Value>& values) {
    Value sum;
    for (Value v : values) {
      const TensorType t = g_.TypeOf(v);
      if (!v.valid() || t.dtype != DType::kF64) continue;
      Value weighted = Mul(g_, v, Input(t, Direction(t)));
      std::vector<int64_t> axes;
      for (int64_t d = 0; d < t.rank(); ++d) axes.push_back(d);
      weighted = ReduceSum(g_, weighted, axes, false);
      sum = sum.valid() ? Add(g_, sum, weighted) : weighted;
    }
    return sum;
  }

  // Compares the gradients of the scalar `loss` with differences. `order` is for the message.
  Status Compare(Value loss, const std::vector<Value>& gradients, absl::string_view order) {
    RETURN_IF_ERROR(g_.status());
    Graph graph = g_.graph();
    graph.outputs.clear();
    graph.outputs.push_back({"loss", loss, ""});
    for (size_t i = 0; i < gradients.size(); ++i) graph.outputs.push_back({absl::StrCat("d", i), gradients[i], ""});
    RETURN_IF_ERROR(Verify(graph));
    ASSIGN_OR_RETURN(const auto at, EvaluateTwice(graph, inputs_));
    Graph only_loss = graph;
    only_loss.outputs.resize(1);
    for (size_t i = 0; i < wrt_.size(); ++i) {
      const std::string direction = Direction(g_.TypeOf(wrt_[i]));
      double along = 0;
      for (size_t k = 0; k < direction.size() / sizeof(double); ++k)
        along += AsDouble(at[1 + i], k) * AsDouble(direction, k);
      constexpr double kStep = 1e-5;
      ASSIGN_OR_RETURN(const double after, LossAt(only_loss, wrt_[i], direction, kStep));
      ASSIGN_OR_RETURN(const double before, LossAt(only_loss, wrt_[i], direction, -kStep));
      const double difference = (after - before) / (2 * kStep);
      if (!(std::fabs(along - difference) <= 1e-6 * (1 + std::fabs(difference)))) {
        return Wrong(absl::StrCat(order, " gradient of float input ", i, " is ", along,
                                  " along a direction, differences give ", difference));
      }
    }
    return absl::OkStatus();
  }

  GraphBuilder& g() { return g_; }
  const std::vector<Value>& wrt() const { return wrt_; }

 private:
  Value Input(const TensorType& type, std::string bytes) {
    inputs_.push_back(std::move(bytes));
    return g_.Input(absl::StrCat("x", inputs_.size()), kData, type);
  }
  std::string Direction(const TensorType& type) {
    std::string bytes(static_cast<size_t>(type.bytes()), '\0');
    ++directions_;
    for (int64_t i = 0; i < type.elements(); ++i)
      StoreDouble(DType::kF64, &bytes[0], i, NormalAt(2, directions_, static_cast<uint64_t>(i)));
    return bytes;
  }
  StatusOr<double> LossAt(const Graph& graph, Value x, const std::string& direction, double step) {
    Inputs moved = inputs_;
    const std::vector<int32_t> nodes = graph.Inputs();
    std::string& bytes = moved[static_cast<size_t>(std::find(nodes.begin(), nodes.end(), x.node) - nodes.begin())];
    for (size_t k = 0; k < bytes.size() / sizeof(double); ++k) {
      const double v = AsDouble(bytes, k) + step * AsDouble(direction, k);
      std::memcpy(&bytes[k * sizeof v], &v, sizeof v);
    }
    ASSIGN_OR_RETURN(const auto out, EvaluateReference(graph, moved));
    return AsDouble(out[0]);
  }

  const OpDef& op_;
  const Sample& sample_;
  GraphBuilder g_;
  std::vector<Value> x_, wrt_;
  Inputs inputs_;
  uint64_t directions_ = 0;
};

// ----------------------------------------------------------------------------------------------------------- rule

// The rule with the outputs' dimensions among the inputs', so that FactorSizes knows what only they say.
StatusOr<Shape> AllSizes(const FactorRule& rule, const Call& call) {
  FactorRule all = rule;
  all.inputs.insert(all.inputs.end(), rule.outputs.begin(), rule.outputs.end());
  std::vector<Shape> shapes;
  for (const TensorType& t : call.inputs) shapes.push_back(t.shape);
  for (const TensorType& t : call.outputs) shapes.push_back(t.shape);
  return FactorSizes(all, shapes, {});
}

// The dimension of a tensor that factor `f` shards, or -1; -2 when its parts would not be contiguous.
int64_t ShardedDimension(const FactorRule::Tensor& tensor, int f, const Shape& sizes) {
  for (size_t d = 0; d < tensor.size(); ++d) {
    for (int other : tensor[d]) {
      if (other == f) return static_cast<int64_t>(d);
      if (sizes[other] != 1 && std::find(tensor[d].begin(), tensor[d].end(), f) != tensor[d].end()) return -2;
    }
  }
  return -1;
}

// Copies part `p` of `n` along `d` out of `whole`, or into it.
void CopyPart(const Memory& whole, const Memory& part, int64_t d, int64_t p, bool into) {
  const Shape& shape = whole.type().shape;
  const int64_t inner = NumElements(absl::MakeConstSpan(shape).subspan(d + 1)) * SizeOf(whole.type().dtype);
  const int64_t outer = NumElements(absl::MakeConstSpan(shape).subspan(0, d));
  const int64_t share = part.type().shape[d];
  for (int64_t o = 0; o < outer; ++o) {
    char* w = static_cast<char*>(whole.data()) + (o * shape[d] + p * share) * inner;
    char* s = static_cast<char*>(part.data()) + o * share * inner;
    std::memcpy(into ? w : s, into ? s : w, static_cast<size_t>(share * inner));
  }
}

TensorType PartType(TensorType type, int64_t d, int64_t n) {
  if (d >= 0) type.shape[d] /= n;
  return type;
}
Shape PartBegin(const TensorType& part, int64_t d, int64_t p) {
  Shape begin(part.shape.size(), 0);
  if (d >= 0) begin[d] = p * part.shape[d];
  return begin;
}

double Reduce(Reduction kind, double a, double b) {
  switch (kind) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kProd:
      return a * b;
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMin:
      return std::min(a, b);
  }
  return 0;
}

// Runs the call in `n` parts along factor `f`; joined, they must be `whole`. An error says what is wrong.
Status RunInParts(const Call& call, const FactorRule& rule, const Shape& sizes, int f, int64_t n,
                  const std::vector<Memory>& inputs, const std::vector<Memory>& whole) {
  const OpDef& op = *call.op;
  std::vector<Memory> joined;
  for (const TensorType& t : call.outputs) joined.emplace_back(t);
  for (int64_t p = 0; p < n; ++p) {
    Call part = call;
    std::vector<Shape> input_begin, output_begin;
    std::vector<Memory> part_inputs;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const int64_t d = ShardedDimension(rule.inputs[i], f, sizes);
      part.inputs[i] = PartType(call.inputs[i], d, n);
      input_begin.push_back(PartBegin(part.inputs[i], d, p));
      part_inputs.emplace_back(part.inputs[i]);
      if (d >= 0)
        CopyPart(inputs[i], part_inputs.back(), d, p, false);
      else
        std::memcpy(part_inputs.back().data(), inputs[i].data(), static_cast<size_t>(call.inputs[i].bytes()));
    }
    for (size_t o = 0; o < call.outputs.size(); ++o) {
      const int64_t d = ShardedDimension(rule.outputs[o], f, sizes);
      part.outputs[o] = PartType(call.outputs[o], d, n);
      output_begin.push_back(PartBegin(part.outputs[o], d, p));
    }
    if (op.localize) {
      ASSIGN_OR_RETURN(part.attrs, op.localize({call.attrs, call.inputs, call.outputs, part.inputs, part.outputs,
                                                input_begin, output_begin}));
    }
    ASSIGN_OR_RETURN(const Call checked, MakeCall(op, part.inputs, part.attrs));
    if (checked.outputs != part.outputs) return Wrong("the parts' types are not parts of the whole's");
    ASSIGN_OR_RETURN(const std::vector<Memory> results, RunReference(checked, part_inputs));
    for (size_t o = 0; o < results.size(); ++o) {
      const int64_t d = ShardedDimension(rule.outputs[o], f, sizes);
      if (d >= 0) {
        CopyPart(joined[o], results[o], d, p, true);
        continue;
      }
      for (int64_t i = 0; i < results[o].type().elements(); ++i) {
        const double v = p == 0 ? results[o].at(i) : Reduce(rule.reduction, joined[o].at(i), results[o].at(i));
        StoreDouble(joined[o].type().dtype, joined[o].data(), i, v);
      }
    }
  }
  for (size_t o = 0; o < whole.size(); ++o) {
    RETURN_IF_ERROR(Annotate(ExpectNear(joined[o], whole[o], IsFloat(whole[o].type().dtype) ? 1e-9 : 0),
                             absl::StrCat("output ", o)));
  }
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------------------------- kernels

bool Allows(const OpDef& op, DType t) {
  return op.types.empty() ? IsFloat(t) : std::find(op.types.begin(), op.types.end(), t) != op.types.end();
}

// The call on tensors whose factors are `times` as long (but the whole ones, unless `with_whole`); nothing when that is
// no call of it.
absl::optional<Call> Enlarged(const Call& call, int64_t times, bool with_whole) {
  const auto rule = RuleOf(*call.op, call.attrs, call.inputs, call.outputs);
  if (!rule.ok()) return absl::nullopt;
  const auto sizes = AllSizes(*rule, call);
  if (!sizes.ok()) return absl::nullopt;
  const auto enlarge = [&](std::vector<TensorType>& types, const std::vector<FactorRule::Tensor>& tensors) {
    int64_t elements = 0;
    for (size_t i = 0; i < types.size(); ++i) {
      for (size_t d = 0; d < tensors[i].size(); ++d) {
        for (int f : tensors[i][d]) {
          if (with_whole || !rule->factors[f].whole) types[i].shape[d] *= times;
        }
      }
      elements += types[i].elements();
    }
    return elements;
  };
  Call large = call;
  constexpr int64_t kMost = 80000;  // elements: enough for a second thread, quick for the reference
  if (enlarge(large.inputs, rule->inputs) > kMost || enlarge(large.outputs, rule->outputs) > kMost)
    return absl::nullopt;
  const OpDef& op = *call.op;
  if (op.localize) {
    std::vector<Shape> in, out;
    for (const TensorType& t : call.inputs) in.emplace_back(t.shape.size(), 0);
    for (const TensorType& t : call.outputs) out.emplace_back(t.shape.size(), 0);
    auto attrs = op.localize({call.attrs, call.inputs, call.outputs, large.inputs, large.outputs, in, out});
    if (!attrs.ok()) return absl::nullopt;
    large.attrs = *std::move(attrs);
  }
  auto checked = MakeCall(op, large.inputs, large.attrs);
  if (!checked.ok()) return absl::nullopt;
  return *std::move(checked);
}

}  // namespace

StatusOr<std::vector<Memory>> Truth(const Call& call, const std::vector<Memory>& inputs) {
  std::vector<Memory> wide;
  std::vector<TensorType> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    wide.push_back(Convert(inputs[i], IsData(*call.op, i, call.inputs[i]) ? DType::kF64 : call.inputs[i].dtype));
    types.push_back(wide.back().type());
  }
  ASSIGN_OR_RETURN(const Call in_f64, MakeCall(*call.op, types, call.attrs));
  return RunReference(in_f64, wide);
}

Status ExpectTruth(const std::vector<Memory>& got, const std::vector<Memory>& truth, double f64_tolerance) {
  for (size_t o = 0; o < got.size(); ++o) {
    const DType type = got[o].type().dtype;
    const double tolerance = type == DType::kF64 ? f64_tolerance : Tolerance(type);
    RETURN_IF_ERROR(Annotate(ExpectNear(got[o], truth[o], tolerance), absl::StrCat("output ", o)));
  }
  return absl::OkStatus();
}

std::vector<Call> SampleCalls(const OpDef& op, const Sample& sample, DType dtype, absl::Span<const int64_t> times) {
  std::vector<Call> calls;
  if (op.body || !Allows(op, dtype)) return calls;
  auto made = MakeCall(op, InputTypes(op, sample, dtype), sample.attrs);
  if (!made.ok()) return calls;
  for (const int64_t n : times) {
    for (const bool with_whole : {false, true}) {
      if (auto large = Enlarged(*made, n, with_whole)) calls.push_back(*std::move(large));
    }
  }
  calls.insert(calls.begin(), *std::move(made));
  return calls;
}

namespace {

Status RunFast(const FastKernel& fast, const Call& call, const Sample& sample) {
  const OpSpec spec{call.attrs, call.inputs, call.outputs};
  if (!fast.supports(spec)) return absl::OkStatus();
  const std::vector<Memory> inputs = MakeInputs(call, sample);
  ASSIGN_OR_RETURN(const auto truth, Truth(call, inputs));
  ASSIGN_OR_RETURN(const auto kernel, fast.make(spec));
  std::vector<Memory> outputs;
  for (const TensorType& t : call.outputs) outputs.emplace_back(t);
  Memory scratch({DType::kU8, {kernel->scratch_bytes()}});
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Memory& m : inputs) in.push_back(m.data());
  for (const Memory& m : outputs) out.push_back(m.data());
  // Statistics of f32 and 16-bit elements may be f64; they are as precise as f32 sums.
  const bool narrow = IsFloat(call.inputs[0].dtype) && call.inputs[0].dtype != DType::kF64;
  for (int run = 0; run < 2; ++run) {  // the second finds its scratch used
    RETURN_IF_ERROR(kernel->Run({in.data(), out.data(), scratch.data()}));
    for (const Memory& m : outputs) {
      if (!m.intact()) return Wrong("wrote past the end of an output");
    }
    if (!scratch.intact()) return Wrong("wrote past the end of its scratch memory");
    RETURN_IF_ERROR(ExpectTruth(outputs, truth, Tolerance(narrow ? DType::kF32 : DType::kF64)));
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckText(const OpDef& op, const Sample& sample) {
  GraphBuilder g("sample");
  std::vector<Value> x;
  for (size_t i = 0; i < sample.inputs.size(); ++i) x.push_back(g.Input(absl::StrCat("x", i), kData, sample.inputs[i]));
  const std::vector<Value> y = g.OpMulti(op.name, x, sample.attrs);
  for (size_t i = 0; i < y.size(); ++i) g.Output(absl::StrCat("y", i), y[i]);
  ASSIGN_OR_RETURN(const Graph graph, g.Finish());
  RETURN_IF_ERROR(Verify(graph));
  const std::string text = ToString(graph);
  ASSIGN_OR_RETURN(const Graph parsed, ParseGraph(text));
  RETURN_IF_ERROR(Verify(parsed));
  if (ToString(parsed) != text)
    return Wrong(absl::StrCat("its text reads back as another graph:\n", text, "\n", ToString(parsed)));
  return absl::OkStatus();
}

Status CheckGradient(const OpDef& op, const Sample& sample) {
  if (op.name == "stop_gradient") return absl::OkStatus();  // differs from the differences by design
  if (!op.grad && !op.zero_gradient && !op.body) return absl::OkStatus();
  Projector p(op, sample);
  ASSIGN_OR_RETURN(const Value loss, p.Forward());
  if (!loss.valid() || p.wrt().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto first, Gradients(p.g(), loss, p.wrt()));
  RETURN_IF_ERROR(p.Compare(loss, first, "first"));
  const Value slope = p.Project(first);
  const auto second = Gradients(p.g(), slope, p.wrt());
  if (second.status().code() == absl::StatusCode::kUnimplemented) return absl::OkStatus();
  RETURN_IF_ERROR(second.status());
  return p.Compare(slope, *second, "second");
}

Status CheckRule(const OpDef& op, const Sample& sample) {
  if (op.body || !op.rule) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const Call call,
      MakeCall(op, InputTypes(op, sample, Allows(op, DType::kF64) ? DType::kF64 : DType::kF32), sample.attrs));
  ASSIGN_OR_RETURN(const FactorRule rule, RuleOf(op, call.attrs, call.inputs, call.outputs));
  ASSIGN_OR_RETURN(const Shape sizes, AllSizes(rule, call));
  const std::vector<Memory> inputs = MakeInputs(call, sample);
  ASSIGN_OR_RETURN(const std::vector<Memory> whole, RunReference(call, inputs));
  for (int f = 0; f < static_cast<int>(rule.factors.size()); ++f) {
    const auto contiguous = [&](const FactorRule::Tensor& t) { return ShardedDimension(t, f, sizes) != -2; };
    if (!std::all_of(rule.inputs.begin(), rule.inputs.end(), contiguous) ||
        !std::all_of(rule.outputs.begin(), rule.outputs.end(), contiguous))
      continue;
    for (const int64_t n : {2, 3}) {
      if (sizes[f] < n || sizes[f] % n != 0) continue;
      const Status status = RunInParts(call, rule, sizes, f, n, inputs, whole);
      const std::string what = absl::StrCat("factor '", rule.factors[f].name, "' in ", n, " parts");
      if (!rule.factors[f].whole)
        RETURN_IF_ERROR(Annotate(status, what));
      else if (status.ok())
        return Wrong(absl::StrCat(what, ": it is marked '!', and the parts join to the whole"));
    }
  }
  return absl::OkStatus();
}

// Whether some kernel beside the reference takes the sample in this type.
StatusOr<bool> HasFastKernel(const OpDef& op, const Sample& sample, DType t) {
  if (op.fast.empty() || !Allows(op, t)) return false;
  ASSIGN_OR_RETURN(const Call call, MakeCall(op, InputTypes(op, sample, t), sample.attrs));
  const OpSpec spec{call.attrs, call.inputs, call.outputs};
  return std::any_of(op.fast.begin(), op.fast.end(), [&](const FastKernel& fast) { return fast.supports(spec); });
}

Status CheckFastKernels(const OpDef& op, const Sample& sample) {
  ASSIGN_OR_RETURN(const bool f32, HasFastKernel(op, sample, DType::kF32));
  ASSIGN_OR_RETURN(const bool f16, HasFastKernel(op, sample, DType::kF16));
  if (f32 && Allows(op, DType::kF16) && !f16) return Wrong("there is a kernel for f32 and none for f16");
  for (const FastKernel& fast : op.fast) {
    for (const DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (!Allows(op, t)) continue;
      const auto made = MakeCall(op, InputTypes(op, sample, t), sample.attrs);
      RETURN_IF_ERROR(made.status());
      RETURN_IF_ERROR(
          Annotate(RunFast(fast, *made, sample), absl::StrCat(fast.name, " in ", Name(t), " on the sample")));
      for (const int64_t times : {5, 16}) {
        for (const bool with_whole : {false, true}) {
          const auto large = Enlarged(*made, times, with_whole);
          if (!large) continue;
          RETURN_IF_ERROR(Annotate(RunFast(fast, *large, sample),
                                   absl::StrCat(fast.name, " in ", Name(t), ", ", times, " times the sample")));
        }
      }
    }
  }
  return absl::OkStatus();
}

Status CheckTypes(const OpDef& op, const Sample& sample) {
  if (op.body) return absl::OkStatus();
  for (int k = 0; k < kNumDTypes; ++k) {
    const DType t = static_cast<DType>(k);
    if (!Allows(op, t)) continue;
    const auto made = MakeCall(op, InputTypes(op, sample, t), sample.attrs);
    RETURN_IF_ERROR(Annotate(made.status(), Name(t)));
    const std::vector<Memory> inputs = MakeInputs(*made, sample);
    const auto outputs = RunReference(*made, inputs);
    RETURN_IF_ERROR(Annotate(outputs.status(), Name(t)));
    if (!IsFloat(t)) continue;
    ASSIGN_OR_RETURN(const auto truth, Truth(*made, inputs));
    RETURN_IF_ERROR(Annotate(ExpectTruth(*outputs, truth), Name(t)));
  }
  return absl::OkStatus();
}

Status CheckInPlace(const OpDef& op, const Sample& sample) {
  for (const auto& [output, input] : op.in_place) {
    ASSIGN_OR_RETURN(const Call call, MakeCall(op, InputTypes(op, sample, DType::kF32), sample.attrs));
    const std::vector<Memory> inputs = MakeInputs(call, sample);
    ASSIGN_OR_RETURN(const auto apart, RunReference(call, inputs));
    std::vector<Memory> outputs;
    std::vector<TensorView> in, out;
    for (const TensorType& t : call.outputs) outputs.emplace_back(t);
    for (const Memory& m : inputs) in.push_back(m.view());
    for (const Memory& m : outputs) out.push_back(m.view());
    if (call.inputs[input] != call.outputs[output]) continue;
    out[output].data = inputs[input].data();
    RETURN_IF_ERROR(op.reference({call.attrs, in, out}));
    RETURN_IF_ERROR(
        Annotate(ExpectNear(inputs[input], apart[output], 0), absl::StrCat("output ", output, " over input ", input)));
  }
  return absl::OkStatus();
}

}  // namespace mslua::testing
