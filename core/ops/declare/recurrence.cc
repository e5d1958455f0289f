#include "core/ops/declare/recurrence.h"

#include "absl/strings/str_cat.h"
#include "core/graph/builder.h"
#include "core/op/formula.h"
#include "core/ops/declare/indices.h"
#include "core/ops/declare/recurrence_rows.h"

namespace mslua {

namespace {

// ------------------------------------------------------------------------------------------------------- reference

// An operand in f64; an output is written back by Store.
std::vector<double> Load(const TensorView& view) {
  std::vector<double> v(static_cast<size_t>(view.type.elements()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = LoadAsDouble(view.type.dtype, view.data, static_cast<int64_t>(i));
  return v;
}
void Store(const std::vector<double>& v, const TensorView& view) {
  for (size_t i = 0; i < v.size(); ++i) StoreDouble(view.type.dtype, view.data, static_cast<int64_t>(i), v[i]);
}

StatusOr<std::vector<int64_t>> Lengths(const TensorView& view, int64_t t) {
  RETURN_IF_ERROR(CheckIndices(view, t + 1, "lengths"));
  std::vector<int64_t> lengths(static_cast<size_t>(view.type.elements()));
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = IndexAt(view, static_cast<int64_t>(i));
  return lengths;
}

// y [rows, columns] = a [rows, terms] times the matrix whose element (l, j) is at l * row + j * column of w.
void Multiply(int64_t rows, int64_t columns, int64_t terms, const double* a, const double* w, int64_t row,
              int64_t column, double* y) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < terms; ++l) sum += a[i * terms + l] * w[l * row + j * column];
      y[i * columns + j] = sum;
    }
  }
}

// The operands of a call, in f64, by their place.
struct Operands {
  std::vector<std::vector<double>> in, out;
  explicit Operands(const OpCall& call) {
    for (const TensorView& v : call.inputs) in.push_back(Load(v));
    for (const TensorView& v : call.outputs) out.emplace_back(static_cast<size_t>(v.type.elements()));
  }
  const double* Next() { return in[i_++].data(); }
  double* NextOut() { return out[o_++].data(); }
  void Store(const OpCall& call) const {
    for (size_t o = 0; o < out.size(); ++o) mslua::Store(out[o], call.outputs[o]);
  }
  size_t i_ = 0, o_ = 0;
};

Status ForwardReference(const RecurrentCell& cell, const OpCall& call) {
  const RecurrentSizes s = RecurrentSizes::Of(cell, call.attrs, call.outputs[0].type.shape);
  ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, Lengths(call.inputs.back(), s.t));
  Operands o(call);
  ForwardMemory<double> m{};
  m.x = o.Next(), m.w = o.Next(), m.b = o.Next(), m.h0 = o.Next();
  if (s.memory) m.c0 = o.Next();
  m.y = o.NextOut(), m.hn = o.NextOut();
  if (s.memory) m.cn = o.NextOut();
  if (s.saved > 0) m.saved = o.NextOut();
  const ScalarProgram program = ForwardProgram(cell);
  std::vector<double> h(static_cast<size_t>(s.n * s.h)), q(static_cast<size_t>(s.n * s.g())),
      workspace(program.code.size() * static_cast<size_t>(s.h));
  ForwardRows(
      s, m, lengths.data(), 0, s.n, h.data(), q.data(),
      [&](const double* state, double* y) { Multiply(s.n, s.g(), s.h, state, m.w, 1, s.h, y); },
      [&](const double* const* in, double* const* out) {
        EvaluateTile<double>(program, s.h, in, out, workspace.data());
      });
  o.Store(call);
  return absl::OkStatus();
}

// How many inputs the gradient has without dsaved.
int64_t GradInputs(const RecurrentCell& cell) { return 6 + (cell.saved > 0) + 2 * static_cast<int64_t>(cell.memory); }

Status BackwardReference(const RecurrentCellFn& cell_of, const OpCall& call) {
  const RecurrentCell plain = cell_of(call.attrs, false);
  const bool through = static_cast<int64_t>(call.inputs.size()) > GradInputs(plain);
  const RecurrentCell cell = cell_of(call.attrs, through);
  const size_t y = cell.saved > 0 ? 2 : 1, lengths_at = y + 2 + cell.memory;
  const RecurrentSizes s = RecurrentSizes::Of(cell, call.attrs, call.inputs[y].type.shape);
  ASSIGN_OR_RETURN(const std::vector<int64_t> lengths, Lengths(call.inputs[lengths_at], s.t));
  Operands o(call);
  BackwardMemory<double> m{};
  m.w = o.Next();
  if (s.saved > 0) m.saved = o.Next();
  m.y = o.Next(), m.h0 = o.Next();
  if (s.memory) m.c0 = o.Next();
  o.Next();
  m.dy = o.Next(), m.dhn = o.Next();
  if (s.memory) m.dcn = o.Next();
  if (through) m.dsaved = o.Next();
  m.dx = o.NextOut();
  if (s.own_products) m.dq = o.NextOut();
  m.before = o.NextOut(), m.dh0 = o.NextOut();
  if (s.memory) m.dc0 = o.NextOut();
  const ScalarProgram program = BackwardProgram(cell, through);
  std::vector<double> back(static_cast<size_t>(s.n * s.h)), workspace(program.code.size() * static_cast<size_t>(s.h));
  BackwardRows(
      s, m, lengths.data(), 0, s.n, back.data(),
      [&](const double* dq, double* y_) { Multiply(s.n, s.h, s.g(), dq, m.w, s.h, 1, y_); },
      [&](const double* const* in, double* const* out) {
        EvaluateTile<double>(program, s.h, in, out, workspace.data());
      });
  o.Store(call);
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------- gradient

std::vector<Value> Gradient(const RecurrentCell& cell, GradContext& c) {
  GraphBuilder& g = c.g;
  const size_t memory = cell.memory;
  const auto gradient = [&](size_t o) { return c.dy[o].valid() ? c.dy[o] : ZerosLike(g, c.outputs[o]); };
  std::vector<Value> in = {c.x(1)};
  const size_t saved = 2 + memory;
  if (cell.saved > 0) in.push_back(c.outputs[saved]);
  in.push_back(c.outputs[0]);
  for (size_t i = 3; i < c.inputs.size(); ++i) in.push_back(c.x(i));
  for (size_t o = 0; o < saved; ++o) in.push_back(gradient(o));
  if (cell.saved > 0 && c.dy[saved].valid()) in.push_back(c.dy[saved]);
  const std::vector<Value> d = g.OpMulti(cell.name + "_grad", in, c.attrs);
  if (!g.status().ok()) return std::vector<Value>(c.inputs.size());
  const size_t products = cell.own_products ? 1 : 0, before = products + 1;
  const Shape x = g.TypeOf(d[0]).shape;
  const int64_t rows = x[0] * x[1];
  const Value dq = Reshape(g, d[products], {rows, x[2]}),
              state = Reshape(g, d[before], {rows, g.TypeOf(d[before]).shape[2]});
  Value dw, db;
  if (c.needed[1]) dw = g.Op("matmul", {dq, state}, {{"transpose_a", true}});
  if (c.needed[2]) db = ReduceSum(g, dq, {0}, false);
  std::vector<Value> all = {d[0], dw, db, d[before + 1]};
  if (cell.memory) all.push_back(d[before + 2]);
  all.push_back(Value());
  return all;
}

// -------------------------------------------------------------------------------------------------------- definition

Status CheckForward(const RecurrentCell& cell, absl::Span<const TensorType> in) {
  const TensorType &x = in[0], &w = in[1];
  if (x.rank() != 3 || w.rank() != 2 || w.shape[0] != cell.gates * w.shape[1] || x.shape[2] != w.shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat("expected x [t, n, g] and w [g, h] with g = ", cell.gates,
                                                   " h, got ", ToString(x), " and ", ToString(w)));
  }
  const Shape state = {x.shape[1], w.shape[1]};
  const auto expect = [](const char* name, const TensorType& t, const Shape& shape) -> Status {
    if (t.shape == shape) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", ToString(t), ", expected the shape ", ToString(absl::MakeConstSpan(shape))));
  };
  RETURN_IF_ERROR(expect("b", in[2], {w.shape[0]}));
  RETURN_IF_ERROR(expect("h0", in[3], state));
  if (cell.memory) RETURN_IF_ERROR(expect("c0", in[4], state));
  return expect("lengths", in.back(), {x.shape[1]});
}

StatusOr<std::vector<TensorType>> InferForward(const RecurrentCell& cell, absl::Span<const TensorType> in) {
  RETURN_IF_ERROR(CheckForward(cell, in));
  const int64_t t = in[0].shape[0], n = in[0].shape[1], h = in[1].shape[1];
  const DType type = in[0].dtype;
  std::vector<TensorType> out = {{type, {t, n, h}}, {type, {n, h}}};
  if (cell.memory) out.push_back({type, {n, h}});
  if (cell.saved > 0) out.push_back({type, {t, n, cell.saved * h}});
  return out;
}

StatusOr<std::vector<TensorType>> InferBackward(const RecurrentCell& cell, absl::Span<const TensorType> in) {
  const size_t y = cell.saved > 0 ? 2 : 1;
  const Shape& w = in[0].shape;
  if (w.size() != 2 || w[0] != cell.gates * w[1] || in[y].rank() != 3 || in[y].shape[2] != w[1])
    return absl::InvalidArgumentError("expected w [g, h] and y [t, n, h]");
  const int64_t t = in[y].shape[0], n = in[y].shape[1], h = w[1];
  const DType type = in[0].dtype;
  const size_t ends = y + 3 + cell.memory + 1, states = 1 + static_cast<size_t>(cell.memory);
  if (in.size() < ends + states || in.size() > ends + states + (cell.saved > 0))
    return absl::InvalidArgumentError(absl::StrCat("expected the gradients of ", states, " states, and of saved"));
  const Shape saved = {t, n, cell.saved * h};
  if (cell.saved > 0 && (in[1].shape != saved || in.back().shape != (in.size() > ends + states ? saved : Shape{n, h})))
    return absl::InvalidArgumentError(
        absl::StrCat("saved and dsaved should be ", ToString(absl::MakeConstSpan(saved))));
  std::vector<TensorType> out = {{type, {t, n, w[0]}}};
  if (cell.own_products) out.push_back(out[0]);
  out.push_back({type, {t, n, h}});
  out.push_back({type, {n, h}});
  if (cell.memory) out.push_back({type, {n, h}});
  return out;
}

double Flops(const Shape& y, int64_t g) {
  return 2.0 * static_cast<double>(y[0]) * static_cast<double>(y[1]) * static_cast<double>(y[2]) *
         static_cast<double>(g);
}

void DeclareBoth(OpDef& op) {
  op.Computes(Precision::kWide);
  op.Attr("reverse", AttrKind::kBool, false, "from each row's last step to the first");
}

OpDef ForwardOp(const RecurrentCellFn& cell_of, const RecurrentCell& cell, const std::function<void(OpDef&)>& declare) {
  OpDef op(cell.name);
  op.Input("x").Input("w").Input("b").Input("h0");
  if (cell.memory) op.Input("c0");
  op.Input("lengths", TypeClass::kIndex);
  std::vector<std::string> outputs = {"y", "hn"};
  std::string rule = "!t n !g, !g !h, !g, n !h, ", results = "!t n !h, n !h";
  if (cell.memory) {
    outputs.push_back("cn");
    rule += "n !h, ";
    results += ", n !h";
  }
  if (cell.saved > 0) {
    outputs.push_back("saved");
    results += ", !t n !s";
  }
  op.Outputs(outputs).Rule(rule + "n -> " + results);
  DeclareBoth(op);
  declare(op);
  op.Infer([cell](const Attrs&, absl::Span<const TensorType> in) { return InferForward(cell, in); });
  op.Grad([cell](GradContext& c) { return Gradient(cell, c); });
  op.Reference([cell_of](const OpCall& call) { return ForwardReference(cell_of(call.attrs, false), call); });
  op.Fast(RecurrentKernel(cell_of, false));
  const int lengths = static_cast<int>(op.inputs.size()) - 1;
  op.OnDevice(RecurrentDevice(cell_of, false),
              IndexFault(
                  lengths, [](const OpSpec& s) { return s.outputs[0].shape[0] + 1; }, "lengths"));
  op.Flops([](const Attrs&, absl::Span<const TensorType> in, absl::Span<const TensorType> out) {
    return Flops(out[0].shape, in[1].shape[0]);
  });
  return op;
}

OpDef BackwardOp(const RecurrentCellFn& cell_of, const RecurrentCell& cell,
                 const std::function<void(OpDef&)>& declare) {
  OpDef op(cell.name + "_grad");
  op.Doc(absl::StrCat("The gradients of ", cell.name,
                      " with respect to x and the first states, and the state that each step began with."));
  op.Input("w");
  std::string inputs = "!g !h";
  if (cell.saved > 0) {
    op.Input("saved");
    inputs += ", !t n !s";
  }
  op.Input("y").Input("h0");
  inputs += ", !t n !h, n !h";
  if (cell.memory) {
    op.Input("c0");
    inputs += ", n !h";
  }
  const int lengths = static_cast<int>(op.inputs.size());
  op.Input("lengths", TypeClass::kIndex).Input("dy").Variadic("ends");
  inputs += ", n, !t n !h";
  std::vector<std::string> outputs = {"dx"};
  std::string results = "!t n !g";
  if (cell.own_products) {
    outputs.push_back("dq");
    results += ", !t n !g";
  }
  outputs.insert(outputs.end(), {"before", "dh0"});
  results += ", !t n !h, n !h";
  if (cell.memory) {
    outputs.push_back("dc0");
    results += ", n !h";
  }
  op.Outputs(outputs);
  op.Rule([inputs, results](const Attrs&, absl::Span<const TensorType> in) {
    std::string rule = inputs;
    for (size_t i = static_cast<size_t>(std::count(inputs.begin(), inputs.end(), ',')) + 1; i < in.size(); ++i)
      rule += in[i].rank() == 3 ? ", !t n !s" : ", n !h";
    return absl::StrCat(rule, " -> ", results);
  });
  DeclareBoth(op);
  declare(op);
  op.Infer([cell](const Attrs&, absl::Span<const TensorType> in) { return InferBackward(cell, in); });
  op.Reference([cell_of](const OpCall& call) { return BackwardReference(cell_of, call); });
  op.Fast(RecurrentKernel(cell_of, true));
  op.OnDevice(RecurrentDevice(cell_of, true),
              IndexFault(
                  lengths, [](const OpSpec& s) { return s.outputs[0].shape[0] + 1; }, "lengths"));
  op.Flops([](const Attrs&, absl::Span<const TensorType> in, absl::Span<const TensorType> out) {
    return Flops({out[0].shape[0], out[0].shape[1], in[0].shape[1]}, in[0].shape[0]);
  });
  return op;
}

}  // namespace

std::vector<OpDef> RecurrentOps(const RecurrentCellFn& cell_of, const std::function<void(OpDef&)>& declare) {
  Attrs attrs;
  OpDef defaults("defaults");
  declare(defaults);
  for (const AttrDef& a : defaults.attrs) attrs.Set(a.name, a.fallback);
  const RecurrentCell cell = cell_of(attrs, false);
  OpDef forward = ForwardOp(cell_of, cell, declare), backward = BackwardOp(cell_of, cell, declare);
  const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };
  constexpr int64_t t = 4, n = 6, h = 3;
  const int64_t g = cell.gates * h;
  for (const bool reverse : {false, true}) {
    const Attrs how = {{"reverse", reverse}};
    Sample sample{{f32({t, n, g}), f32({g, h}), f32({g}), f32({n, h})}, how, -1, 1, t + 1};
    if (cell.memory) sample.inputs.push_back(f32({n, h}));
    sample.inputs.push_back({DType::kI32, {n}});
    forward.AddSample(sample);
    Sample gradient{{f32({g, h})}, how, -1, 1, t + 1};
    if (cell.saved > 0) gradient.inputs.push_back(f32({t, n, cell.saved * h}));
    gradient.inputs.insert(gradient.inputs.end(), {f32({t, n, h}), f32({n, h})});
    if (cell.memory) gradient.inputs.push_back(f32({n, h}));
    gradient.inputs.insert(gradient.inputs.end(), {{DType::kI64, {n}}, f32({t, n, h}), f32({n, h})});
    if (cell.memory) gradient.inputs.push_back(f32({n, h}));
    if (cell.saved > 0 && reverse) gradient.inputs.push_back(f32({t, n, cell.saved * h}));
    backward.AddSample(gradient);
  }
  return {std::move(forward), std::move(backward)};
}

}  // namespace mslua
