#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// What a hidden key scores: no probability is left of it beside any other key, and the difference of two is a number.
constexpr double kHidden = -1e30;

Shape Leading(const Shape& shape, int64_t last) { return Shape(shape.begin(), shape.end() - last); }

Shape With(Shape shape, std::initializer_list<int64_t> last) {
  shape.insert(shape.end(), last.begin(), last.end());
  return shape;
}

// Query heads that share a key-value head.
StatusOr<int64_t> GroupOf(const Shape& q, const Shape& k) {
  const size_t r = q.size();
  if (r < 3) return q.size() == k.size() ? StatusOr<int64_t>(1) : absl::InvalidArgumentError("k has another rank");
  const int64_t heads = q[r - 3], kv = k[r - 3];
  if (heads == kv) return 1;
  if (heads > 0 && kv > 0 && heads % kv == 0) return heads / kv;
  return absl::InvalidArgumentError(
      absl::StrCat("q has ", heads, " heads and k has ", kv, ", expected a number that divides those of q"));
}

Status CheckShapes(const Attrs& attrs, absl::Span<const TensorType> in) {
  const Shape &q = in[0].shape, &k = in[1].shape, &v = in[2].shape;
  const size_t r = q.size();
  if (r < 2 || k.size() != r || v.size() != r)
    return absl::InvalidArgumentError("expected q [.., h, t, d], k [.., g, s, d] and v [.., g, s, e] of one rank");
  RETURN_IF_ERROR(GroupOf(q, k).status());
  const bool fits = q[r - 1] == k[r - 1] && Leading(k, 1) == Leading(v, 1) && (r < 4 || Leading(q, 3) == Leading(k, 3));
  if (!fits) return absl::InvalidArgumentError("expected q [.., h, t, d], k [.., g, s, d] and v [.., g, s, e]");
  if (attrs.Bool("causal") && q[r - 2] > k[r - 2])
    return absl::InvalidArgumentError("causal attention needs at least as many keys as queries");
  return absl::OkStatus();
}

Status CheckMask(absl::Span<const TensorType> in) {
  const TensorType& mask = in[3];
  if (mask.dtype != DType::kBool && !IsFloat(mask.dtype))
    return absl::InvalidArgumentError(
        absl::StrCat("the mask is ", ToString(mask), ", expected bool (true: seen) or floats that are added"));
  const Shape scores = With(Leading(in[0].shape, 1), {in[1].shape[in[1].shape.size() - 2]});
  const auto shape = BroadcastShape(scores, mask.shape);
  if (shape.ok() && *shape == scores) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the mask does not broadcast to the scores ",
                                                 ToString(absl::MakeConstSpan(scores)), " [.., h, t, s]"));
}

// x [.., h, t, c] as [.., kv, h / kv * t, c]: the queries that share a head's keys are rows of one matrix.
Value Fold(GraphBuilder& g, Value x, int64_t group) {
  if (group == 1) return x;
  const Shape s = g.TypeOf(x).shape;
  const size_t r = s.size();
  return Reshape(g, x, With(Leading(s, 3), {s[r - 3] / group, group * s[r - 2], s[r - 1]}));
}
Value Unfold(GraphBuilder& g, Value x, int64_t group) {
  if (group == 1) return x;
  const Shape s = g.TypeOf(x).shape;
  const size_t r = s.size();
  return Reshape(g, x, With(Leading(s, 3), {s[r - 3] * group, s[r - 2] / group, s[r - 1]}));
}

// Which keys a query sees, bool [t, s].
Value Causal(GraphBuilder& g, int64_t t, int64_t s) {
  const Value row = g.Op("iota", {}, {{"size", t}, {"dtype", DType::kI32}, {"start", static_cast<double>(s - t)}});
  const Value column = g.Op("iota", {}, {{"size", s}, {"dtype", DType::kI32}});
  return Elementwise(g, "greater_equal", {Reshape(g, row, {t, 1}), Reshape(g, column, {1, s})});
}

std::vector<Value> Body(GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) {
  const TensorType q = g.TypeOf(in[0]);
  const int64_t t = q.shape[q.shape.size() - 2], s = g.TypeOf(in[1]).shape[q.shape.size() - 2];
  const int64_t group = *GroupOf(q.shape, g.TypeOf(in[1]).shape);
  double scale = attrs.Float("scale");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q.shape.back())));
  const DType wide = q.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  // A product of 16-bit operands has 16 bits: of scaled queries it overflows only where the scores do.
  const bool narrow = q.dtype != wide;
  const Value queries = Fold(g, narrow ? Mul(g, in[0], scale) : in[0], group);
  Value scores = Unfold(g, g.Op("matmul", {queries, in[1]}, {{"transpose_b", true}}), group);
  scores = narrow ? Cast(g, scores, wide) : Mul(g, scores, scale);
  Value seen;
  const bool chosen = g.TypeOf(in[3]).dtype == DType::kBool;
  if (chosen)
    seen = in[3];
  else
    scores = Add(g, scores, Cast(g, in[3], wide));
  if (attrs.Bool("causal")) {
    const Value below = Causal(g, t, s);
    seen = seen.valid() ? Elementwise(g, "logical_and", {seen, below}) : below;
  }
  // Floats may be less than kHidden.
  const double hidden = chosen ? kHidden : -std::numeric_limits<double>::infinity();
  if (seen.valid()) scores = Elementwise(g, "select", {seen, scores, g.Constant(hidden, wide)});
  Value p = g.Op("softmax", {scores});
  // Of a query that sees no key every key is hidden alike: it gets zeros, not their mean.
  if (chosen) p = Mul(g, p, Cast(g, seen, wide));
  const Value y = g.Op("matmul", {Fold(g, Cast(g, p, q.dtype), group), in[2]});
  return {Unfold(g, y, group)};
}

}  // namespace

// Composites of products and a softmax: what scaled_dot_product_attention of the library calls where there is a mask.
MSLUA_OPERATOR(masked_attention) {
  const auto f32 = [](Shape s) { return TensorType{DType::kF32, std::move(s)}; };
  const TensorType lower{DType::kBool, {3, 5}};

  OpDef op("masked_attention");
  op.Doc(
      "softmax(scale * q k^T + mask) v for queries q [.., h, t, d], keys k [.., g, s, d] and values v [.., g, s, e], "
      "of "
      "which each head serves h / g heads of queries: y [.., h, t, e]. The mask broadcasts to [.., h, t, s]: bool, "
      "where "
      "true says that the query sees the key, or floats that are added to the scores. A query that a bool mask lets "
      "see "
      "no key gets zeros (PyTorch: NaN). ops.scaled_dot_product_attention calls it when it is given a mask.");
  op.Input("q").Input("k").Input("v").Input("mask", TypeClass::kAny);
  op.Attr("causal", AttrKind::kBool, false, "query i sees keys up to i + s - t")
      .Attr("scale", AttrKind::kFloat, 0.0, "of the scores; 0: 1 / sqrt(d)");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    RETURN_IF_ERROR(CheckShapes(a, in));
    return CheckMask(in);
  });
  op.Body(Body);
  op.AddSample({{f32({2, 2, 3, 4}), f32({2, 2, 5, 4}), f32({2, 2, 5, 3}), lower}});
  op.AddSample({{f32({2, 4, 3, 4}), f32({2, 2, 5, 4}), f32({2, 2, 5, 3}), f32({2, 1, 1, 5})}, {{"causal", true}}});
  op.AddSample({{f32({3, 4}), f32({5, 4}), f32({5, 6}), f32({3, 5})}, {{"scale", 0.7}}});

  OpDef grouped("grouped_attention");
  grouped.Doc(
      "scaled_dot_product_attention of queries q [.., h, t, d] whose heads share keys k [.., g, s, d] and values v "
      "[.., "
      "g, s, e], h / g of them each: y [.., h, t, e]. ops.scaled_dot_product_attention calls it when heads differ.");
  grouped.Input("q").Input("k").Input("v");
  grouped.Attr("causal", AttrKind::kBool, false, "query i sees keys up to i + s - t")
      .Attr("scale", AttrKind::kFloat, 0.0, "of the scores; 0: 1 / sqrt(d)");
  grouped.Check(CheckShapes);
  grouped.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const int64_t group = *GroupOf(g.TypeOf(in[0]).shape, g.TypeOf(in[1]).shape);
    const auto repeat = [&](Value x) {
      const Shape s = g.TypeOf(x).shape;
      if (group == 1) return x;
      const size_t r = s.size();
      const Value once = Reshape(g, x, With(Leading(s, 2), {1, s[r - 2], s[r - 1]}));
      const Value all = BroadcastTo(g, once, With(Leading(s, 2), {group, s[r - 2], s[r - 1]}));
      return Reshape(g, all, With(Leading(s, 3), {s[r - 3] * group, s[r - 2], s[r - 1]}));
    };
    return {g.OpMulti("scaled_dot_product_attention", {in[0], repeat(in[1]), repeat(in[2])},
                      {{"causal", attrs.Bool("causal")}, {"scale", attrs.Float("scale")}})[0]};
  });
  grouped.AddSample({{f32({2, 4, 3, 4}), f32({2, 2, 5, 4}), f32({2, 2, 5, 3})}, {{"causal", true}}});
  grouped.AddSample({{f32({4, 3, 4}), f32({1, 5, 4}), f32({1, 5, 4})}});
  return {op, grouped};
}

}  // namespace mslua
