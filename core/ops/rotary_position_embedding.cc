#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The angle of pair i at position 1, with what Llama 3's files say of longer texts: waves that are longer than the
// texts of the pre-training turn slower by `factor`, short ones as before, and those between are mixed
// (transformers, modeling_rope_utils.py).
double Frequency(const Attrs& attrs, int64_t i, int64_t width) {
  const double plain = std::pow(attrs.Float("base"), -2.0 * static_cast<double>(i) / static_cast<double>(width));
  const std::string& kind = attrs.Str("scaling");
  const double factor = attrs.Float("factor");
  if (kind == "none") return plain;
  if (kind == "linear") return plain / factor;
  const double low = attrs.Float("low_freq_factor"), high = attrs.Float("high_freq_factor");
  const double old = attrs.Float("original_length"), wave = 2 * std::acos(-1.0) / plain;
  if (wave < old / high) return plain;
  if (wave > old / low) return plain / factor;
  const double smooth = (old / wave - low) / (high - low);
  return (1 - smooth) * plain / factor + smooth * plain;
}

Status Check(const Attrs& attrs, absl::Span<const TensorType> in) {
  const Shape &x = in[0].shape, &positions = in[1].shape;
  const size_t r = x.size();
  if (r < 2 || x[r - 1] % 2 != 0) return absl::InvalidArgumentError("expected x [.., t, d] with an even d");
  const bool fits = positions.size() == 1
                        ? positions[0] == x[r - 2]
                        : r >= 3 && positions.size() == 2 && positions[0] == x[0] && positions[1] == x[r - 2];
  if (!fits)
    return absl::InvalidArgumentError(
        absl::StrCat("expected positions [t], or [n, t] for x [n, .., t, d], with t = ", x[r - 2]));
  const bool llama3 = attrs.Str("scaling") == "llama3";
  if (!(attrs.Float("base") > 0) || !(attrs.Float("factor") > 0))
    return absl::InvalidArgumentError("base and factor should be above 0");
  if (llama3 && !(attrs.Float("high_freq_factor") > attrs.Float("low_freq_factor") &&
                  attrs.Float("low_freq_factor") > 0 && attrs.Float("original_length") > 0))
    return absl::InvalidArgumentError(
        "scaling llama3 needs 0 < low_freq_factor < high_freq_factor and original_length above 0");
  return absl::OkStatus();
}

// Elements [begin, end) of the last dimension, `stride` apart.
Value Part(GraphBuilder& g, Value x, int64_t begin, int64_t end, int64_t stride) {
  const Shape s = g.TypeOf(x).shape;
  std::vector<int64_t> first(s.size(), 0), last(s.begin(), s.end()), strides(s.size(), 1);
  first.back() = begin;
  last.back() = end;
  strides.back() = stride;
  return g.Op("strided_slice", {x}, {{"begin", first}, {"end", last}, {"strides", strides}});
}

std::vector<Value> Body(GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) {
  const TensorType x = g.TypeOf(in[0]);
  const Shape positions = g.TypeOf(in[1]).shape;
  const size_t r = x.shape.size();
  const int64_t d = x.shape[r - 1], t = x.shape[r - 2];
  const DType wide = x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const TensorType pairs{wide, {d / 2}};
  std::string bytes(static_cast<size_t>(pairs.bytes()), '\0');
  for (int64_t i = 0; i < d / 2; ++i) StoreDouble(wide, &bytes[0], i, Frequency(attrs, i, d));
  // Positions as [n, 1.., t, 1], or [t, 1].
  Shape rows(positions.size() == 1 ? 0 : r - 2, 1);
  if (positions.size() == 2) rows[0] = positions[0];
  rows.push_back(t);
  rows.push_back(1);
  const Value angles = Elementwise(g, "mul", {Reshape(g, Cast(g, in[1], wide), rows), g.Literal(pairs, bytes)});
  const Value cos = g.Op("cos", {angles}), sin = g.Op("sin", {angles}), wx = Cast(g, in[0], wide);
  const bool halves = attrs.Str("mode") == "halves";
  const Value a = halves ? Part(g, wx, 0, d / 2, 1) : Part(g, wx, 0, d, 2);
  const Value b = halves ? Part(g, wx, d / 2, d, 1) : Part(g, wx, 1, d, 2);
  const Value ya = Sub(g, Mul(g, a, cos), Mul(g, b, sin)), yb = Add(g, Mul(g, b, cos), Mul(g, a, sin));
  const int64_t last = static_cast<int64_t>(r);
  if (halves) return {Cast(g, g.Op("concat", {ya, yb}, {{"axis", last - 1}}), x.dtype)};
  Shape column = x.shape;
  column.back() = d / 2;
  column.push_back(1);
  const Value y = g.Op("concat", {Reshape(g, ya, column), Reshape(g, yb, column)}, {{"axis", last}});
  return {Cast(g, Reshape(g, y, x.shape), x.dtype)};
}

}  // namespace

// A composite.
MSLUA_OPERATOR(rotary_position_embedding) {
  OpDef op("rotary_position_embedding");
  op.Class("RotaryPositionEmbedding")
      .Doc(
          "Rotary position embedding (Su et al., 2021): turns each pair of x [.., t, d] by its position times base^(-2 "
          "i "
          "/ d). positions [t], or [n, t] for x [n, .., t, d]. MindSpore's operator takes cos and sin in their place.");
  op.Input("x").Input("positions", TypeClass::kIndex);
  op.Choice("mode", {"halves", "interleaved"},
            "the pairs: i and i + d / 2 (Hugging Face; MindSpore's mode 0), or 2 i and 2 i + 1 (Meta; mode 1)");
  op.Attr("base", AttrKind::kFloat, 10000.0, "of the frequencies: rope_theta");
  op.Choice("scaling", {"none", "linear", "llama3"}, "of the frequencies, for longer texts");
  op.Attr("factor", AttrKind::kFloat, 1.0, "linear, llama3: by how much")
      .Attr("low_freq_factor", AttrKind::kFloat, 1.0, "llama3: waves longer than original_length / it are scaled")
      .Attr("high_freq_factor", AttrKind::kFloat, 4.0, "llama3: waves shorter than original_length / it are not")
      .Attr("original_length", AttrKind::kFloat, 8192.0, "llama3: tokens of the texts of the pre-training");
  op.Check(Check);
  op.Body(Body);
  op.AddSample({{{DType::kF32, {2, 3, 4}}, {DType::kI32, {3}}}});
  op.AddSample({{{DType::kF32, {2, 3, 5, 6}}, {DType::kI32, {2, 5}}}, {{"mode", "interleaved"}, {"base", 100.0}}});
  op.AddSample({{{DType::kF32, {2, 3, 8}}, {DType::kI64, {3}}},
                {{"scaling", "llama3"}, {"factor", 8.0}, {"original_length", 64.0}}});
  return {op};
}

}  // namespace mslua
