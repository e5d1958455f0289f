#include "core/ops/declare/row_norm.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/simd/row_norm_kernels.h"
#include "core/op/device_text.h"

namespace mslua {
namespace {

using absl::StrAppend;
using absl::StrCat;

// The dimensions before and from `axis`.
std::string Lead(const Attrs& a) {
  std::string dims;
  for (int64_t d = 0; d < a.Int("axis"); ++d) StrAppend(&dims, " b", d);
  return dims;
}
std::string Row(const Attrs& a, int64_t rank, absl::string_view mark) {
  std::string dims;
  for (int64_t d = a.Int("axis"); d < rank; ++d) StrAppend(&dims, " ", mark, "d", d);
  return dims;
}

RowNorm SizesOf(const Attrs& a, const Shape& x, bool centred) {
  const auto dims = absl::MakeConstSpan(x);
  return {NumElements(dims.subspan(0, a.Int("axis"))), NumElements(dims.subspan(a.Int("axis"))), centred,
          a.Has("eps") ? a.Float("eps") : 0};
}

// Operands from `first` on are statistics or parameters.
void CheckStatistics(OpDef& op, size_t first) {
  op.Check([first](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    const DType wanted = StatisticsType(in[0].dtype);
    for (size_t i = first; i < in.size(); ++i) {
      if (in[i].dtype != wanted)
        return absl::InvalidArgumentError(
            StrCat("parameters and statistics are ", Name(wanted), " here (convert them with :astype)"));
    }
    return absl::OkStatus();
  });
}

// Checks the operands' shapes by the rule `lhs`; the results are as given.
void InferBy(OpDef& op,
             std::function<StatusOr<std::vector<TensorType>>(const Attrs&, absl::Span<const TensorType>)> results) {
  const RuleFn rule = op.rule;
  std::vector<std::string> names;
  for (const InputDef& i : op.inputs) names.push_back(i.name);
  op.Infer([=](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    std::vector<int64_t> ranks;
    std::vector<Shape> shapes;
    for (const TensorType& t : in) {
      ranks.push_back(t.rank());
      shapes.push_back(t.shape);
    }
    ASSIGN_OR_RETURN(const FactorRule r, ParseFactorRule(rule(a, in), ranks));
    RETURN_IF_ERROR(FactorSizes(r, shapes, names).status());
    return results(a, in);
  });
}

Shape LeadShape(const Attrs& a, const Shape& x) { return Shape(x.begin(), x.begin() + a.Int("axis")); }
Shape RowShape(const Attrs& a, const Shape& x) { return Shape(x.begin() + a.Int("axis"), x.end()); }

double At(const TensorView& v, int64_t i) { return LoadAsDouble(v.type.dtype, v.data, i); }
void Put(const TensorView& v, int64_t i, double value) { StoreDouble(v.type.dtype, v.data, i, value); }

// (x - mean) * rstd of row r, element k; operands dy, x[, mean], rstd.
double Normal(const OpCall& call, const RowNorm& n, int64_t r, int64_t k) {
  const double mean = n.centred ? At(call.inputs[2], r) : 0;
  return (At(call.inputs[1], r * n.size + k) - mean) * At(call.inputs[n.centred ? 3 : 2], r);
}

Status GradParamsReference(const OpCall& call, bool centred) {
  const TensorView dy = call.inputs[0];
  const RowNorm n = SizesOf(call.attrs, dy.type.shape, centred);
  for (int64_t k = 0; k < n.size; ++k) {
    double dscale = 0, dbias = 0;
    for (int64_t r = 0; r < n.rows; ++r) {
      dscale += At(dy, r * n.size + k) * Normal(call, n, r, k);
      dbias += At(dy, r * n.size + k);
    }
    Put(call.outputs[0], k, dscale);
    if (centred) Put(call.outputs[1], k, dbias);
  }
  return absl::OkStatus();
}

// The operands dy, x[, mean], rstd: (x - mean) * rstd of row r, element k.
std::string NormalText(bool centred) {
  return centred ? "((C)Get(x1[r * size + k]) - x2[r]) * x3[r]" : "(C)Get(x1[r * size + k]) * x2[r]";
}

DeviceProgram GradParamsOnDevice(const OpSpec& spec, bool centred) {
  const RowNorm n = SizesOf(spec.attrs, spec.inputs[0].shape, centred);
  DeviceReduction sums;
  sums.outputs = n.size;
  sums.length = n.rows;
  sums.type = DeviceType(spec.inputs[2].dtype);
  sums.joins = centred ? "++" : "+";
  sums.adjacent = true;
  // The result is a column's: k of the text above is the row here, and the other way round.
  sums.element = absl::StrCat(
      Constant("size", n.size), "    const i64 r = k;\n    const C a1 = Get(x0[r * size + row]);\n",
      "    const auto normal = [&](i64 k) { return ", NormalText(centred), "; };\n    const C a0 = a1 * normal(row);");
  sums.finish = centred ? "  y0[row] = t0;\n  y1[row] = t1;" : "  y0[row] = t0;";
  return DeviceReduce(sums);
}

enum class Part { kForward, kGradInput, kGradParams };

constexpr int64_t kGrain = 8 * 1024;  // elements below which one thread does all

class RowNormKernel : public Kernel {
 public:
  RowNormKernel(const RowNorm& n, DType t, Part part) : n_(n), bf16_(t == DType::kBF16), part_(part) {
    // Split by the sizes alone, so that the sums do not depend on the number of threads.
    if (part_ == Part::kGradParams)
      chunks_ = std::clamp<int64_t>(n_.rows * n_.size / kGrain, 1, std::clamp<int64_t>(n_.rows, 1, 32));
  }

  int64_t scratch_bytes() const override { return chunks_ * 2 * n_.size * static_cast<int64_t>(sizeof(float)); }

  Status Run(const Buffers& b) override {
    const int s = n_.centred ? 1 : 0;  // how far the mean pushes what follows
    if (part_ == Part::kForward) {
      const RowNormForward call = {b.inputs[0],
                                   Floats(b.inputs[1]),
                                   n_.centred ? Floats(b.inputs[2]) : nullptr,
                                   b.outputs[0],
                                   n_.centred ? static_cast<float*>(b.outputs[1]) : nullptr,
                                   static_cast<float*>(b.outputs[1 + s])};
      ParallelFor(n_.rows, kGrain / (n_.size + 1) + 1,
                  [&](int64_t begin, int64_t end) { RunForward(bf16_, n_, call, begin, end); });
      return absl::OkStatus();
    }
    const RowNormBackward call = {b.inputs[0],
                                  b.inputs[1],
                                  n_.centred ? Floats(b.inputs[2]) : nullptr,
                                  Floats(b.inputs[2 + s]),
                                  part_ == Part::kGradInput ? Floats(b.inputs[3 + s]) : nullptr,
                                  b.outputs[0]};
    if (part_ == Part::kGradInput) {
      ParallelFor(n_.rows, kGrain / (n_.size + 1) + 1,
                  [&](int64_t begin, int64_t end) { RunGradInput(bf16_, n_, call, begin, end); });
      return absl::OkStatus();
    }
    float* partial = static_cast<float*>(b.scratch);
    ParallelFor(chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        RunGradParams(bf16_, n_, call, partial + t * 2 * n_.size, n_.rows * t / chunks_, n_.rows * (t + 1) / chunks_);
    });
    // Columns side by side: one chunk's lies so far from the next one's that they may share a place in the caches.
    constexpr int64_t kTogether = 256;
    const int64_t columns = (n_.centred ? 2 : 1) * n_.size;
    for (int64_t first = 0; first < columns; first += kTogether) {
      const int64_t count = std::min(kTogether, columns - first);
      double sums[kTogether] = {};
      for (int64_t t = 0; t < chunks_; ++t) {
        const float* const row = partial + t * 2 * n_.size + first;
        for (int64_t c = 0; c < count; ++c) sums[c] += row[c];
      }
      for (int64_t i = first; i < first + count; ++i)
        static_cast<float*>(b.outputs[i / n_.size])[i % n_.size] = static_cast<float>(sums[i - first]);
    }
    return absl::OkStatus();
  }

 private:
  static const float* Floats(const void* p) { return static_cast<const float*>(p); }
  const RowNorm n_;
  const bool bf16_;
  const Part part_;
  int64_t chunks_ = 0;
};

FastKernel Highway(Part part, bool centred) {
  return {
      "highway",
      [](const OpSpec& s) {
        return (s.inputs[0].dtype == DType::kF32 || s.inputs[0].dtype == DType::kBF16) && s.inputs[0].elements() > 0;
      },
      [=](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<RowNormKernel>(SizesOf(s.attrs, s.inputs[0].shape, centred), s.inputs[0].dtype, part);
      }};
}

// Operands of a call of the gradients, dy, x[, mean], rstd, for formulas over [rows.., d..].
struct Rows {
  Rows(GradContext& c, bool centred)
      : g(c.g), x(g.TypeOf(c.x(1))), statistics(StatisticsType(x.dtype)), n(SizesOf(c.attrs, x.shape, centred)) {
    for (int64_t d = 0; d < x.rank(); ++d) (d < c.attrs.Int("axis") ? leading : trailing).push_back(d);
    column = LeadShape(c.attrs, x.shape);
    column.resize(x.shape.size(), 1);
    dy = Wide(c.x(0));
    rstd = Reshape(g, c.x(centred ? 3 : 2), column);
    h = Wide(c.x(1));
    if (centred) h = Sub(g, h, Reshape(g, c.x(2), column));
    normal = Mul(g, h, rstd);
  }

  Value Wide(Value v) { return Cast(g, v, statistics); }
  Value Narrow(Value v) { return Cast(g, BroadcastTo(g, v, x.shape), x.dtype); }
  Value MeanOfRow(Value v) { return Mul(g, ReduceSum(g, v, trailing, true), 1 / static_cast<double>(n.size)); }
  Value SumOfRow(Value v) { return ReduceSum(g, BroadcastTo(g, v, x.shape), trailing, false); }
  Value SumOfRows(Value v) {
    v = BroadcastTo(g, v, x.shape);
    return leading.empty() ? v : ReduceSum(g, v, leading, false);
  }

  GraphBuilder& g;
  const TensorType x;
  const DType statistics;
  const RowNorm n;
  std::vector<int64_t> leading, trailing;
  Shape column;  // of a statistic
  Value dy, rstd, h, normal;
};

// The gradients of x[, mean] and rstd, from that of the normalised x and what else rstd does.
std::vector<Value> ThroughNormal(Rows& of, Value dnormal, Value through_rstd) {
  GraphBuilder& g = of.g;
  const Value dh = Mul(g, dnormal, of.rstd), by_h = Mul(g, dnormal, of.h);
  std::vector<Value> d = {of.Narrow(dh)};
  if (of.n.centred) d.push_back(of.SumOfRow(Mul(g, dh, -1)));
  d.push_back(of.SumOfRow(through_rstd.valid() ? Add(g, through_rstd, by_h) : by_h));
  return d;
}

// With u the gradient of dx, a = dy * scale and n = (x - mean) * rstd, and M the mean of a row, what is differentiated
// is the sum of u * rstd * (a - M(a) - n * M(a * n)), without M(a) where rows are not centred.
std::vector<Value> GradInputGrad(GradContext& c, bool centred) {
  Rows of(c, centred);
  GraphBuilder& g = of.g;
  const Value scale = c.x(centred ? 4 : 3), u = of.Wide(c.dy[0]), a = Mul(g, of.dy, scale);
  const Value su = of.MeanOfRow(Mul(g, u, of.normal)), sa = of.MeanOfRow(Mul(g, a, of.normal));
  Value v = Sub(g, u, Mul(g, of.normal, su));
  if (centred) v = Sub(g, v, of.MeanOfRow(u));
  const Value da = Mul(g, v, of.rstd);
  const Value dnormal =
      EmitFormula(g, "-r * (u * sa + a * su)", {{"r", of.rstd}, {"u", u}, {"sa", sa}, {"a", a}, {"su", su}});
  std::vector<Value> d = {of.Narrow(Mul(g, da, scale))};
  for (const Value& each : ThroughNormal(of, dnormal, Mul(g, a, v))) d.push_back(each);
  d.push_back(of.SumOfRows(Mul(g, da, of.dy)));
  return d;
}

// What is differentiated is the sum of dscale * dy * n[ + dbias * dy] over rows.
std::vector<Value> GradParamsGrad(GradContext& c, bool centred) {
  Rows of(c, centred);
  GraphBuilder& g = of.g;
  const Value v = c.dy[0].valid() ? c.dy[0] : ZerosLike(g, c.outputs[0]);
  Value ddy = Mul(g, v, of.normal);
  if (centred && c.dy[1].valid()) ddy = Add(g, ddy, c.dy[1]);
  std::vector<Value> d = {of.Narrow(ddy)};
  for (const Value& each : ThroughNormal(of, Mul(g, v, of.dy), Value())) d.push_back(each);
  return d;
}

}  // namespace

DType StatisticsType(DType x) { return x == DType::kF64 ? DType::kF64 : DType::kF32; }

namespace {

RowFormula RowsFrom(const OpSpec& spec) {
  RowFormula f;
  f.shape = spec.inputs[0].shape;
  for (int64_t d = spec.attrs.Int("axis"); d < spec.inputs[0].rank(); ++d) f.axes.push_back(d);
  f.constants = {{"n", static_cast<double>(SizesOf(spec.attrs, f.shape, true).size)}};
  return f;
}

}  // namespace

StatusOr<RowForm> RowNormForm(const OpSpec& spec, bool centred) {
  RowFormula f = RowsFrom(spec);
  f.constants.emplace_back("eps", spec.attrs.Float("eps"));
  if (centred) {
    f.operands = {{"x"}, {"scale"}, {"bias"}};
    f.statements = {"total = row_sum(x)", "mean = total / n", "d = x - mean"};
  } else {
    f.operands = {{"x"}, {"scale"}};
    f.statements = {"d = x"};
  }
  f.statements.insert(f.statements.end(), {"squares = row_sum(d * d)", "rstd = 1 / sqrt(squares / n + eps)",
                                           centred ? "y = d * rstd * scale + bias" : "y = d * rstd * scale"});
  f.results = {{"y"}};
  if (centred) f.results.push_back({"mean", true});
  f.results.push_back({"rstd", true});
  return FormOf(f, spec);
}

StatusOr<RowForm> RowNormGradInputForm(const OpSpec& spec, bool centred) {
  RowFormula f = RowsFrom(spec);
  if (centred) {
    f.operands = {{"dy"}, {"x"}, {"mean", true}, {"rstd", true}, {"scale"}};
    f.statements = {"d = x - mean", "g = dy * scale", "gs = row_sum(g)", "by_mean = gs / n"};
  } else {
    f.operands = {{"dy"}, {"x"}, {"rstd", true}, {"scale"}};
    f.statements = {"d = x", "g = dy * scale", "by_mean = 0"};
  }
  f.statements.insert(f.statements.end(), {"normal = d * rstd", "slopes = row_sum(g * normal)", "slope = slopes / n",
                                           "dx = rstd * (g - by_mean - normal * slope)"});
  f.results = {{"dx"}};
  return FormOf(f, spec);
}

void DeclareRowNorm(OpDef& op, bool centred) {
  op.Input("x").Input("scale", TypeClass::kFloat);
  if (centred) op.Input("bias", TypeClass::kFloat);
  op.Outputs(centred ? std::vector<std::string>{"y", "mean", "rstd"} : std::vector<std::string>{"y", "rstd"});
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the first of the axes that are normalised together");
  op.Attr("eps", AttrKind::kFloat, centred ? 1e-5 : 1e-6,
          centred ? "added to the variance, so that its root is never 0"
                  : "added to the mean of the squares, so that its root is never 0");
  op.Rule([centred](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string b = Lead(a), d = Row(a, in[0].rank(), "!");
    return StrCat(b, d, ",", d, centred ? "," + d : "", " ->", b, d, ",", b, centred ? "," + b : "");
  });
  CheckStatistics(op, 1);
  InferBy(op, [centred](const Attrs& a, absl::Span<const TensorType> in) {
    const TensorType statistic = {StatisticsType(in[0].dtype), LeadShape(a, in[0].shape)};
    std::vector<TensorType> out(centred ? 3 : 2, statistic);
    out[0] = in[0];
    return out;
  });
  ComputesRows(op);
  op.Fast(Highway(Part::kForward, centred));
}

void DeclareRowNormGradInput(OpDef& op, bool centred) {
  op.Input("dy").Input("x");
  if (centred) op.Input("mean", TypeClass::kFloat);
  op.Input("rstd", TypeClass::kFloat).Input("scale", TypeClass::kFloat).Outputs({"dx"});
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the first of the axes that are normalised together");
  op.Rule([centred](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string b = Lead(a), d = Row(a, in[0].rank(), "!");
    return StrCat(b, d, ",", b, d, ",", centred ? b + "," : "", b, ",", d, " ->", b, d);
  });
  CheckStatistics(op, 2);
  op.Grad([centred](GradContext& c) { return GradInputGrad(c, centred); });
  ComputesRows(op);
  op.Fast(Highway(Part::kGradInput, centred));
}

void DeclareRowNormGradParams(OpDef& op, bool centred) {
  op.Input("dy").Input("x");
  if (centred) op.Input("mean", TypeClass::kFloat);
  op.Input("rstd", TypeClass::kFloat);
  op.Outputs(centred ? std::vector<std::string>{"dscale", "dbias"} : std::vector<std::string>{"dscale"});
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the first of the axes that are normalised together");
  op.Rule([centred](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string b = Lead(a), d = Row(a, in[0].rank(), "");
    return StrCat(b, d, ",", b, d, ",", centred ? b + "," : "", b, " ->", d, centred ? "," + d : "");
  });
  CheckStatistics(op, 2);
  InferBy(op, [centred](const Attrs& a, absl::Span<const TensorType> in) {
    return std::vector<TensorType>(centred ? 2 : 1, {StatisticsType(in[0].dtype), RowShape(a, in[0].shape)});
  });
  op.Grad([centred](GradContext& c) { return GradParamsGrad(c, centred); });
  op.Reference([centred](const OpCall& c) { return GradParamsReference(c, centred); });
  op.OnDevice([centred](const OpSpec& s) { return GradParamsOnDevice(s, centred); });
  op.Fast(Highway(Part::kGradParams, centred));
}

GradFn RowNormGrad(std::string name, bool centred) {
  return [name, centred](GradContext& c) {
    GraphBuilder& g = c.g;
    const Attrs axis = {{"axis", c.attrs.Int("axis")}};
    const TensorType x = g.TypeOf(c.x(0));
    const Value rstd = c.outputs[centred ? 2 : 1], dy = c.dy[0].valid() ? c.dy[0] : ZerosLike(g, c.x(0));
    std::vector<Value> operands = {dy, c.x(0)};
    if (centred) operands.push_back(c.outputs[1]);
    operands.push_back(rstd);
    std::vector<Value> d(centred ? 3 : 2);
    if (c.needed[1] || (centred && c.needed[2])) {
      const std::vector<Value> params = g.OpMulti(name + "_grad_params", operands, axis);
      std::copy(params.begin(), params.end(), d.begin() + 1);
    }
    if (!c.needed[0]) return d;
    operands.push_back(c.x(1));
    d[0] = g.Op(name + "_grad_input", operands, axis);
    // What flows back through the statistics themselves, when they are used.
    const RowNorm n = SizesOf(c.attrs, x.shape, centred);
    Shape column = LeadShape(c.attrs, x.shape);
    column.resize(x.shape.size(), 1);
    const auto add = [&](absl::string_view formula, Value statistic_dy) {
      std::vector<std::pair<std::string, Value>> values = {{"x", Cast(g, c.x(0), StatisticsType(x.dtype))},
                                                           {"rstd", Reshape(g, rstd, column)}};
      if (centred) values.emplace_back("mean", Reshape(g, c.outputs[1], column));
      values.emplace_back("dy", Reshape(g, statistic_dy, column));
      const Value term = EmitFormula(g, formula, values, {{"inverse", 1 / static_cast<double>(n.size)}});
      d[0] = Add(g, d[0], Cast(g, BroadcastTo(g, term, x.shape), x.dtype));
    };
    if (centred && c.dy[1].valid()) add("dy * inverse", c.dy[1]);
    const Value drstd = c.dy[centred ? 2 : 1];
    if (drstd.valid())
      add(centred ? "-dy * rstd * rstd * rstd * (x - mean) * inverse" : "-dy * rstd * rstd * rstd * x * inverse",
          drstd);
    return d;
  };
}

}  // namespace mslua
