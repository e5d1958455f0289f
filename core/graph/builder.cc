#include "core/graph/builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "core/base/rng.h"
#include "core/op/formula.h"
#include "core/op/marks.h"
#include "core/op/registry.h"

namespace mslua {

void GraphBuilder::Fail(Status status) {
  if (!status_.ok() || status.ok()) return;
  if (location_ && !location_->file.empty()) {
    status = Annotate(status, absl::StrCat(location_->file, ":", location_->line));
  }
  status_ = std::move(status);
}

const TensorType& GraphBuilder::TypeOf(Value v) const {
  static const TensorType* const kNone = new TensorType;
  return v.valid() ? graph_.TypeOf(v) : *kNone;
}

Value GraphBuilder::Input(absl::string_view name, absl::string_view kind, const TensorType& type) {
  Attrs attrs;
  attrs.Set("name", std::string(name)).Set("kind", std::string(kind)).Set("dtype", type.dtype);
  attrs.Set("shape", std::vector<int64_t>(type.shape.begin(), type.shape.end()));
  return Op("input", {}, std::move(attrs));
}

Value GraphBuilder::Constant(double value, DType dtype, absl::Span<const int64_t> shape) {
  std::string bytes(SizeOf(dtype), '\0');
  StoreDouble(dtype, &bytes[0], 0, value);
  TensorType type;
  type.dtype = dtype;
  const Value scalar = Literal(type, std::move(bytes));
  return shape.empty() ? scalar : BroadcastTo(*this, scalar, shape);
}

Value GraphBuilder::Literal(const TensorType& type, std::string bytes) {
  Attrs attrs;
  attrs.Set("dtype", type.dtype)
      .Set("shape", std::vector<int64_t>(type.shape.begin(), type.shape.end()))
      .Set("data", std::move(bytes));
  return Op("constant", {}, std::move(attrs));
}

Value GraphBuilder::Op(absl::string_view op, absl::Span<const Value> inputs, Attrs attrs) {
  const std::vector<Value> out = OpMulti(op, inputs, std::move(attrs));
  return out.empty() ? Value() : out[0];
}

std::vector<Value> GraphBuilder::OpMulti(absl::string_view op, absl::Span<const Value> inputs, Attrs attrs) {
  if (!status_.ok()) return {};
  Node n;
  n.op = Operators().Find(op);
  if (n.op == nullptr) {
    Fail(absl::InvalidArgumentError(absl::StrCat("unknown operator '", op, "'")));
    return {};
  }
  std::vector<TensorType> types;
  for (Value v : inputs) {
    if (!v.valid()) {
      Fail(absl::InternalError(absl::StrCat(op, ": an input is not a value")));
      return {};
    }
    types.push_back(graph_.TypeOf(v));
  }
  if (n.op->body) {
    Fail(CheckOperands(*n.op, types, attrs));
    return status_.ok() ? n.op->body(*this, inputs, attrs) : std::vector<Value>();
  }
  if (n.op->random && !mark::kRng.Has(attrs)) {
    const std::string scope = location_ ? location_->scope : "";
    auto it = std::find_if(rng_counts_.begin(), rng_counts_.end(), [&](const auto& c) { return c.first == scope; });
    if (it == rng_counts_.end()) it = rng_counts_.insert(it, {scope, 0});
    mark::kRng.Set(attrs, static_cast<int64_t>(StreamOf(absl::StrCat("rng:", scope), it->second++) >> 1));
  }
  auto outputs = CheckCall(*n.op, types, attrs);
  if (!outputs.ok()) {
    Fail(outputs.status());
    return {};
  }
  n.inputs.assign(inputs.begin(), inputs.end());
  n.attrs = std::move(attrs);
  n.outputs.assign(outputs->begin(), outputs->end());
  n.location = location_;
  n.region = region_;
  const int32_t id = static_cast<int32_t>(graph_.nodes.size());
  std::vector<Value> values;
  for (size_t i = 0; i < n.outputs.size(); ++i) values.push_back({id, static_cast<int32_t>(i)});
  graph_.nodes.push_back(std::move(n));
  return values;
}

std::vector<Value> GraphBuilder::Clone(const Node& node, absl::Span<const Value> inputs) {
  const auto location = location_;
  const int32_t region = region_;
  location_ = node.location;
  region_ = node.region;
  auto out = OpMulti(node.op->name, inputs, node.attrs);
  location_ = location;
  region_ = region;
  return out;
}

void GraphBuilder::Output(std::string name, Value value, std::string updates) {
  if (!value.valid()) {
    Fail(absl::InternalError(absl::StrCat("output '", name, "' is not a value")));
    return;
  }
  graph_.outputs.push_back({std::move(name), value, std::move(updates)});
}

StatusOr<Graph> GraphBuilder::Finish() {
  RETURN_IF_ERROR(status_);
  return std::move(graph_);
}

StatusOr<Shape> BroadcastShape(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  Shape out(a.begin(), a.end());
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t& d = out[out.size() - 1 - i];
    const int64_t e = b[b.size() - 1 - i];
    if (d == e || e == 1) continue;
    if (d != 1)
      return absl::InvalidArgumentError(
          absl::StrCat("shapes ", ToString(a), " and ", ToString(b), " do not broadcast: ", d, " against ", e));
    d = e;
  }
  return out;
}

Value Elementwise(GraphBuilder& g, absl::string_view op, absl::Span<const Value> inputs, Attrs attrs) {
  Shape shape;
  for (Value v : inputs) {
    if (!v.valid()) return {};
    auto merged = BroadcastShape(shape, g.TypeOf(v).shape);
    if (!merged.ok()) {
      g.Fail(Annotate(merged.status(), std::string(op)));
      return {};
    }
    shape = *std::move(merged);
  }
  std::vector<Value> wide;
  for (Value v : inputs) wide.push_back(BroadcastTo(g, v, shape));
  return g.Op(op, wide, std::move(attrs));
}

Value Add(GraphBuilder& g, Value a, Value b) { return Elementwise(g, "add", {a, b}); }
Value Sub(GraphBuilder& g, Value a, Value b) { return Elementwise(g, "sub", {a, b}); }
Value Mul(GraphBuilder& g, Value a, Value b) { return Elementwise(g, "mul", {a, b}); }
Value Div(GraphBuilder& g, Value a, Value b) { return Elementwise(g, "div", {a, b}); }
Value Mul(GraphBuilder& g, Value a, double b) { return Mul(g, a, g.Constant(b, g.TypeOf(a).dtype)); }
Value Add(GraphBuilder& g, Value a, double b) { return Add(g, a, g.Constant(b, g.TypeOf(a).dtype)); }

Value Reshape(GraphBuilder& g, Value x, absl::Span<const int64_t> shape) {
  if (absl::Span<const int64_t>(g.TypeOf(x).shape) == shape) return x;
  return g.Op("reshape", {x}, {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
}

Value Transpose(GraphBuilder& g, Value x, absl::Span<const int64_t> permutation) {
  return g.Op("transpose", {x}, {{"perm", std::vector<int64_t>(permutation.begin(), permutation.end())}});
}

Value BroadcastTo(GraphBuilder& g, Value x, absl::Span<const int64_t> shape) {
  if (absl::Span<const int64_t>(g.TypeOf(x).shape) == shape) return x;
  return g.Op("broadcast_to", {x}, {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
}

Value ReduceSum(GraphBuilder& g, Value x, absl::Span<const int64_t> axes, bool keep_dims) {
  if (axes.empty()) return x;
  return g.Op("reduce_sum", {x}, {{"axis", std::vector<int64_t>(axes.begin(), axes.end())}, {"keep_dims", keep_dims}});
}

Value Cast(GraphBuilder& g, Value x, DType dtype) {
  if (g.TypeOf(x).dtype == dtype) return x;
  return g.Op("cast", {x}, {{"dtype", dtype}});
}

Value ZerosLike(GraphBuilder& g, Value x) {
  const TensorType type = g.TypeOf(x);
  return g.Constant(0, type.dtype, type.shape);
}

namespace {

bool IsLogic(ScalarOp op) { return ResultOf(op) == ScalarResult::kTruth || op == ScalarOp::kSelect; }

// The values of a program's instructions that depend on numbers alone; logic, whose results are bools, is left out.
std::vector<absl::optional<double>> NumbersOf(const ScalarProgram& program) {
  std::vector<absl::optional<double>> numbers;
  for (const ScalarInstr& i : program.code) {
    numbers.emplace_back();
    if (i.op == ScalarOp::kInput || IsLogic(i.op)) continue;
    ScalarProgram one;
    one.results = {Arity(i.op)};
    for (int k = 0; k < Arity(i.op) && numbers[i.args[k]]; ++k) {
      one.code.emplace_back();
      one.code.back().constant = *numbers[i.args[k]];
    }
    if (static_cast<int>(one.code.size()) < Arity(i.op)) continue;
    one.code.push_back(i);
    for (int k = 0; k < Arity(i.op); ++k) one.code.back().args[k] = k;
    double value;
    EvaluateScalar(one, nullptr, &value);
    numbers.back() = value;
  }
  return numbers;
}

}  // namespace

Value EmitFormula(GraphBuilder& g, absl::string_view formula, const std::vector<std::pair<std::string, Value>>& values,
                  const Attrs& constants) {
  if (!g.status().ok()) return {};
  FormulaNames names;
  DType own = DType::kF32;
  for (const auto& v : values) {
    names.inputs.push_back(v.first);
    if (v.second.valid()) own = g.TypeOf(v.second).dtype;
  }
  for (const auto& a : constants.items()) {
    if (const double* d = std::get_if<double>(&a.second)) names.constants.emplace_back(a.first, *d);
  }
  const auto program = ParseFormula({std::string(formula)}, names);
  if (!program.ok()) {
    g.Fail(program.status());
    return {};
  }
  const std::vector<absl::optional<double>> numbers = NumbersOf(*program);
  int steps = 0;
  for (size_t i = 0; i < program->code.size(); ++i) {
    steps += !numbers[i] && ResultOf(program->code[i].op) == ScalarResult::kRounded ? 1 : 0;
  }
  // Arithmetic is on the type of the last named value (dy, by custom); comparisons' results are cast to it.
  const DType dtype = steps > 1 ? ArithmeticType(own) : own;
  std::vector<Value> done;
  for (size_t at = 0; at < program->code.size(); ++at) {
    const ScalarInstr& i = program->code[at];
    if (i.op == ScalarOp::kInput) {
      const Value v = values[i.args[0]].second;
      done.push_back(dtype != own && IsFloat(g.TypeOf(v).dtype) ? Cast(g, v, dtype) : v);
    } else if (numbers[at]) {
      done.emplace_back();  // made where it is read
    } else {
      std::vector<Value> args;
      for (int k = 0; k < Arity(i.op); ++k) {
        Value v = done[i.args[k]];
        if (const auto number = numbers[i.args[k]]) v = g.Constant(*number, dtype);
        const bool condition = i.op == ScalarOp::kSelect && k == 0;
        const bool logical = i.op == ScalarOp::kAnd || i.op == ScalarOp::kOr || i.op == ScalarOp::kNot;
        if (g.TypeOf(v).dtype == DType::kBool && !condition && !logical) v = Cast(g, v, dtype);
        args.push_back(v);
      }
      done.push_back(Elementwise(g, Name(i.op), args));
    }
  }
  const int32_t result = program->results[0];
  if (numbers[result]) return g.Constant(*numbers[result], own);
  return g.TypeOf(done[result]).dtype == dtype ? Cast(g, done[result], own) : done[result];
}

GradFn GradFormula(std::vector<std::string> formulas) {
  return [formulas = std::move(formulas)](GradContext& c) {
    std::vector<std::pair<std::string, Value>> values;
    for (size_t i = 0; i < c.inputs.size(); ++i) values.emplace_back(c.op.inputs[i].name, c.inputs[i]);
    for (size_t i = 0; i < c.outputs.size(); ++i) values.emplace_back(c.op.outputs[i], c.outputs[i]);
    values.emplace_back("dy", c.dy[0]);
    std::vector<Value> dx;
    for (size_t i = 0; i < formulas.size(); ++i) {
      dx.push_back(!c.needed[i] || formulas[i].empty() ? Value() : EmitFormula(c.g, formulas[i], values, c.attrs));
    }
    return dx;
  };
}

}  // namespace mslua
