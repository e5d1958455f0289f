#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/kernels/dispatch.h"
#include "core/kernels/select/attention_kernels.h"
#include "core/onnx/lowering.h"
#include "core/ops/declare/device_attention.h"
#include "core/ops/declare/row_norm.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The one query and key that causal rows line up on need all of both.
std::string Rule(const Attrs& attrs, bool grad) {
  const std::string t = attrs.Bool("causal") ? "*b !t" : "*b t", s = attrs.Bool("causal") || !grad ? "*b !s" : "*b s";
  const std::string qkv = t + " !d, " + s + " !d, " + s + " !e";
  return grad ? qkv + ", " + t + ", " + t + ", " + t + " !e -> " + t + " !d, " + s + " !d, " + s + " !e"
              : qkv + " -> " + t + " !e, " + t;
}

void Declare(OpDef& op) {
  op.Attr("causal", AttrKind::kBool, false, "query i sees keys up to i + s - t")
      .Attr("scale", AttrKind::kFloat, 0.0, "of the scores; 0: 1 / sqrt(d)");
}

Status CheckShapes(const Attrs& attrs, absl::Span<const TensorType> in) {
  const int64_t r = in[0].rank();
  if (r < 2) return absl::InvalidArgumentError("queries need 2 or more dimensions, [.., t, d]");
  for (int i = 1; i < 3; ++i) {
    if (in[i].rank() != r) return absl::InvalidArgumentError("queries, keys and values need equally many dimensions");
  }
  if (attrs.Bool("causal") && in[0].shape[r - 2] > in[1].shape[r - 2])
    return absl::InvalidArgumentError("causal attention needs at least as many keys as queries");
  return absl::OkStatus();
}

// Probabilities of query i of a head: the softmax of its scores, whose lse goes to `lse`; or exp(score - lse) for an
// lse that is `given`. Normalised by the sum itself: of a huge maximum lse has no digits left for the sum's logarithm.
// A given lse of these scores, in its type `statistics`, is the one that is found here.
template <class T>
std::vector<double> Probabilities(const Attention& a, const T* q, const T* k, int64_t i, DType statistics, double* lse,
                                  bool given) {
  std::vector<double> p(a.s, 0.0);
  double max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < a.Seen(i); ++j) {
    for (int64_t l = 0; l < a.d; ++l) p[j] += static_cast<double>(q[i * a.d + l]) * static_cast<double>(k[j * a.d + l]);
    p[j] *= a.scale;
    max = std::max(max, p[j]);
  }
  for (int64_t j = 0; j < a.Seen(i); ++j) sum += std::exp(p[j] - max);
  const double exact = max + std::log(sum), own = statistics == DType::kF32 ? static_cast<float>(exact) : exact;
  const double total = given ? sum * std::exp(*lse - own) : sum;
  for (int64_t j = 0; j < a.Seen(i); ++j) p[j] = std::exp(p[j] - max) / total;
  if (!given) *lse = own;
  return p;
}

Attention SizesOf(const OpCall& call) {
  return Attention::Of(call.attrs, call.inputs[0].type.shape, call.inputs[1].type.shape, call.inputs[2].type.shape);
}

Status Forward(const OpCall& call) {
  const Attention a = SizesOf(call);
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t h = 0; h < a.heads; ++h) {
      const T *q = call.inputs[0].as<T>() + h * a.t * a.d, *k = call.inputs[1].as<T>() + h * a.s * a.d,
              *v = call.inputs[2].as<T>() + h * a.s * a.e;
      T* y = call.outputs[0].as<T>() + h * a.t * a.e;
      for (int64_t i = 0; i < a.t; ++i) {
        double lse = 0;
        const std::vector<double> p = Probabilities(a, q, k, i, call.outputs[1].type.dtype, &lse, false);
        StoreDouble(call.outputs[1].type.dtype, call.outputs[1].data, h * a.t + i, lse);
        for (int64_t c = 0; c < a.e; ++c) {
          double sum = 0;
          for (int64_t j = 0; j < a.s; ++j) sum += p[j] * static_cast<double>(v[j * a.e + c]);
          y[i * a.e + c] = static_cast<T>(static_cast<ComputeType<T>>(sum));
        }
      }
    }
  });
  return absl::OkStatus();
}

Status Backward(const OpCall& call) {
  const Attention a = SizesOf(call);
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t h = 0; h < a.heads; ++h) {
      const T *q = call.inputs[0].as<T>() + h * a.t * a.d, *k = call.inputs[1].as<T>() + h * a.s * a.d,
              *v = call.inputs[2].as<T>() + h * a.s * a.e;
      const T* dy = call.inputs[5].as<T>() + h * a.t * a.e;
      std::vector<double> dq(a.t * a.d), dk(a.s * a.d), dv(a.s * a.e);
      for (int64_t i = 0; i < a.t; ++i) {
        double lse = LoadAsDouble(call.inputs[3].type.dtype, call.inputs[3].data, h * a.t + i);
        const double delta = LoadAsDouble(call.inputs[4].type.dtype, call.inputs[4].data, h * a.t + i);
        const std::vector<double> p = Probabilities(a, q, k, i, call.inputs[3].type.dtype, &lse, true);
        for (int64_t j = 0; j < a.Seen(i); ++j) {
          double dp = 0;
          for (int64_t c = 0; c < a.e; ++c) {
            dp += static_cast<double>(dy[i * a.e + c]) * static_cast<double>(v[j * a.e + c]);
            dv[j * a.e + c] += p[j] * static_cast<double>(dy[i * a.e + c]);
          }
          const double ds = p[j] * (dp - delta) * a.scale;
          for (int64_t l = 0; l < a.d; ++l) {
            dq[i * a.d + l] += ds * static_cast<double>(k[j * a.d + l]);
            dk[j * a.d + l] += ds * static_cast<double>(q[i * a.d + l]);
          }
        }
      }
      const std::vector<double>* results[] = {&dq, &dk, &dv};
      for (int o = 0; o < 3; ++o) {
        T* out = call.outputs[o].as<T>() + h * static_cast<int64_t>(results[o]->size());
        for (size_t i = 0; i < results[o]->size(); ++i)
          out[i] = static_cast<T>(static_cast<ComputeType<T>>((*results[o])[i]));
      }
    }
  });
  return absl::OkStatus();
}

DeviceProgram OnDevice(const OpSpec& spec, bool grad) {
  const Attention a = Attention::Of(spec.attrs, spec.inputs[0].shape, spec.inputs[1].shape, spec.inputs[2].shape);
  const auto head = [](const char* operand, int64_t rows, int64_t row) {
    return absl::StrCat(operand, " + head * ", rows * row);
  };
  AttentionPlaces at;
  at.q = head("x0", a.t, a.d);
  at.k = head("x1", a.s, a.d);
  at.v = head("x2", a.s, a.e);
  at.q_row = at.k_row = a.d;
  at.v_row = at.y_row = a.e;
  at.y = head("y0", a.t, a.e);
  at.lse = head(grad ? "x3" : "y1", a.t, 1);
  if (!grad) return AttentionOnDevice(a, spec.inputs[0].dtype, at);
  at.delta = head("x4", a.t, 1);
  at.dy = head("x5", a.t, a.e);
  at.dq = head("y0", a.t, a.d);
  at.dk = head("y1", a.s, a.d);
  at.dv = head("y2", a.s, a.e);
  return AttentionGradOnDevice(a, spec.inputs[0].dtype, at);
}

// With P the probabilities, delta = rowsum(dy * y): what every score of a row loses because probabilities sum to one.
std::vector<Value> Grad(GradContext& c) {
  GraphBuilder& g = c.g;
  const TensorType y = g.TypeOf(c.outputs[0]);
  const DType statistics = StatisticsType(y.dtype);
  const Value dy = c.dy[0].valid() ? c.dy[0] : ZerosLike(g, c.outputs[0]);
  Value delta = ReduceSum(g, Mul(g, Cast(g, dy, statistics), Cast(g, c.outputs[0], statistics)), {y.rank() - 1}, false);
  if (c.dy[1].valid()) delta = Sub(g, delta, c.dy[1]);
  return g.OpMulti("scaled_dot_product_attention_grad", {c.x(0), c.x(1), c.x(2), c.outputs[1], delta, dy},
                   {{"causal", c.attrs.Bool("causal")}, {"scale", c.attrs.Float("scale")}});
}

// With u, v and w the gradients of dq, dk and dv, P the probabilities, G = dy v^T and D = P * (G - delta), what is
// differentiated is scale * (sum(u * (D k)) + sum(v * (D^T q))) + sum(w * (P^T dy)).
std::vector<Value> GradGrad(GradContext& c) {
  GraphBuilder& g = c.g;
  const TensorType type = g.TypeOf(c.x(0));
  const DType wide = StatisticsType(type.dtype);
  const Shape k_shape = g.TypeOf(c.x(1)).shape;
  const auto operand = [&](size_t i) { return Cast(g, c.x(i), wide); };
  const auto gradient = [&](size_t i) { return Cast(g, c.dy[i].valid() ? c.dy[i] : ZerosLike(g, c.outputs[i]), wide); };
  const Value q = operand(0), k = operand(1), values = operand(2), dy = operand(5);
  const Value u = gradient(0), v = gradient(1), w = gradient(2);
  Shape column = g.TypeOf(c.x(3)).shape;
  column.push_back(1);
  const Value lse = Reshape(g, c.x(3), column), delta = Reshape(g, c.x(4), column);
  const auto times = [&](Value a, Value b, bool transpose_a, bool transpose_b) {
    return g.Op("matmul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
  };
  const double scale = Attention::Of(c.attrs, type.shape, k_shape, g.TypeOf(c.x(2)).shape).scale;
  // Where a query does not see a key the exponent may be any number.
  const Value below =
      EmitFormula(g, "min(s * scale - lse, 80)", {{"s", times(q, k, false, true)}, {"lse", lse}}, {{"scale", scale}});
  Value p = g.Op("exp", {below});
  if (c.attrs.Bool("causal"))
    p = g.Op("tril", {p}, {{"diagonal", k_shape[k_shape.size() - 2] - type.shape[type.shape.size() - 2]}});
  const Value gap = Sub(g, times(dy, values, false, true), delta), d = Mul(g, p, gap);
  const Value a = Mul(g, Add(g, times(u, k, false, true), times(q, v, false, true)), scale);
  const Value ap = Mul(g, a, p);
  const Value s = Add(g, Mul(g, ap, gap), Mul(g, p, times(dy, w, false, true)));
  const std::vector<int64_t> last = {type.rank() - 1};
  const auto loss_of_row = [&](Value x) { return Mul(g, ReduceSum(g, x, last, false), -1); };
  const auto narrow = [&](Value x) { return Cast(g, x, type.dtype); };
  return {narrow(Mul(g, Add(g, times(s, k, false, false), times(d, v, false, false)), scale)),
          narrow(Mul(g, Add(g, times(s, q, true, false), times(d, u, true, false)), scale)),
          narrow(times(ap, dy, true, false)),
          loss_of_row(s),
          loss_of_row(ap),
          narrow(Add(g, times(ap, values, false, false), times(p, w, false, false)))};
}

double ScoreFlops(const Attrs& attrs, absl::Span<const TensorType> in) {
  const Attention a = Attention::Of(attrs, in[0].shape, in[1].shape, in[2].shape);
  return 2.0 * static_cast<double>(a.heads * a.t * a.s) * (a.causal ? 0.5 : 1.0);
}

}  // namespace

MSLUA_OPERATOR(scaled_dot_product_attention) {
  const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };
  const Attrs causal = {{"causal", true}};

  OpDef op("scaled_dot_product_attention");
  op.Computes(Precision::kNarrowBF16);
  op.Class("ScaledDotProductAttention");
  op.Doc(
      "softmax(scale * q k^T) v for queries q [.., t, d], keys k [.., s, d] and values v [.., s, e]: y [.., t, e], and "
      "lse [.., t] in f32 (f64 for f64), the logarithm of each row's sum of exp(scores). Causal: the last query sees "
      "all keys, each one before it one less. The gradient's probabilities are exp(score - lse): in f32 their relative "
      "error is about 1e-7 times |lse|, as large as that of the scores.");
  op.Input("q").Input("k").Input("v").Outputs({"y", "lse"});
  Declare(op);
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) { return Rule(a, false); });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    RETURN_IF_ERROR(CheckShapes(a, in));
    ASSIGN_OR_RETURN(const FactorRule rule,
                     ParseFactorRule(Rule(a, false), {in[0].rank(), in[1].rank(), in[2].rank()}));
    RETURN_IF_ERROR(FactorSizes(rule, {in[0].shape, in[1].shape, in[2].shape}, {"q", "k", "v"}).status());
    TensorType y = in[0], lse = in[0];
    y.shape.back() = in[2].shape.back();
    lse.shape.pop_back();
    lse.dtype = StatisticsType(y.dtype);
    return std::vector<TensorType>{y, lse};
  });
  op.Grad(Grad).Reference(Forward);
  op.OnDevice([](const OpSpec& s) { return OnDevice(s, false); });
  AddAttentionKernels(op, false);
  op.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType>) {
    return ScoreFlops(a, in) * static_cast<double>(in[0].shape.back() + in[2].shape.back());
  });
  op.AddSample({{f32({2, 3, 4}), f32({2, 6, 4}), f32({2, 6, 3})}});
  op.AddSample({{f32({2, 4, 5}), f32({2, 6, 5}), f32({2, 6, 5})}, causal});
  op.AddSample({{f32({1, 2, 37, 9}), f32({1, 2, 150, 9}), f32({1, 2, 150, 17})}, {{"causal", true}, {"scale", 0.7}}});
  op.AddSample({{f32({2, 3, 4}), f32({2, 6, 4}), f32({2, 6, 3})}, {{"scale", -0.7}}});

  OpDef grad("scaled_dot_product_attention_grad");
  grad.Doc(
      "The gradients of q, k and v, from lse and delta [.., t], each row's sum of dy * y less the gradient of lse.");
  grad.Input("q")
      .Input("k")
      .Input("v")
      .Input("lse", TypeClass::kFloat)
      .Input("delta", TypeClass::kFloat)
      .Input("dy")
      .Outputs({"dq", "dk", "dv"});
  Declare(grad);
  grad.Rule([](const Attrs& a, absl::Span<const TensorType>) { return Rule(a, true); });
  grad.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    const bool fits = in[3].dtype == StatisticsType(in[0].dtype) && in[4].dtype == in[3].dtype;
    return fits ? CheckShapes(a, in) : absl::InvalidArgumentError("lse and delta are f32 (f64 for f64)");
  });
  grad.Grad(GradGrad).Reference(Backward);
  grad.OnDevice([](const OpSpec& s) { return OnDevice(s, true); });
  AddAttentionKernels(grad, true);
  grad.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType>) {
    return ScoreFlops(a, in) * static_cast<double>(3 * in[0].shape.back() + 2 * in[2].shape.back());
  });
  grad.AddSample(
      {{f32({2, 3, 4}), f32({2, 6, 4}), f32({2, 6, 3}), f32({2, 3}), f32({2, 3}), f32({2, 3, 3})}, {}, 0.2, 1});
  grad.AddSample({{f32({2, 37, 5}), f32({2, 150, 5}), f32({2, 150, 7}), f32({2, 37}), f32({2, 37}), f32({2, 37, 7})},
                  causal,
                  0.2,
                  1});
  return {op, grad};
}

MSLUA_ONNX(scaled_dot_product_attention) {
  const size_t r = static_cast<size_t>(c.TypeIn().rank());
  const Attention a = Attention::Of(c.attrs(), c.TypeIn(0).shape, c.TypeIn(1).shape, c.TypeIn(2).shape);
  const std::vector<onnx::Dim> y = c.DimsOut(0);
  if (y[r - 2].rows != 0) return c.Fail("the length of its sequences depends on the batch");
  const DType type = c.TypeIn().dtype, wide = type == DType::kF64 ? type : DType::kF32;
  const auto in = [&](size_t i) { return type == wide ? c.In(i) : c.Cast(c.In(i), wide); };
  std::vector<int64_t> perm(r);
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::swap(perm[r - 1], perm[r - 2]);
  std::string scores = c.Op("MatMul", {in(0), c.Transpose(in(1), perm)});
  scores = c.Op("Mul", {scores, c.Number(a.scale, wide)});
  if (c.attrs().Bool("causal")) {
    std::string seen(static_cast<size_t>(a.t * a.s), '\0');
    for (int64_t i = 0; i < a.t; ++i) {
      for (int64_t j = 0; j < a.Seen(i); ++j) seen[static_cast<size_t>(i * a.s + j)] = 1;
    }
    const std::string none = c.Number(-std::numeric_limits<double>::infinity(), wide);
    scores = c.Op("Where", {c.Tensor({DType::kBool, {a.t, a.s}}, seen), scores, none});
  }
  const std::string out = c.Op("MatMul", {c.Op("Softmax", {scores}, {{"axis", int64_t{-1}}}), in(2)});
  c.Result(type == wide ? out : c.Cast(out, type));
}

}  // namespace mslua
