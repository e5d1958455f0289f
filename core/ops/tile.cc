#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {

// A composite: a new dimension before each, broadcast, and joined with it.
MSLUA_OPERATOR(tile) {
  OpDef op("tile");
  op.Class("Tile").Doc(
      "x repeated multiples[d] times along each dimension, as NumPy's tile: missing leading numbers are 1, and further "
      "ones add dimensions.");
  op.Input("x").AllTypes().Required("multiples", AttrKind::kInts, "how often, by dimension");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    for (int64_t m : a.Ints("multiples")) {
      if (m < 0) return absl::InvalidArgumentError(absl::StrCat("multiples has ", m, ", expected no negative number"));
    }
    return absl::OkStatus();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    std::vector<int64_t> multiples = attrs.Ints("multiples");
    Shape shape = g.TypeOf(in[0]).shape;
    const size_t rank = std::max(multiples.size(), shape.size());
    multiples.insert(multiples.begin(), rank - multiples.size(), 1);
    shape.insert(shape.begin(), rank - shape.size(), 1);
    Shape apart, wide, joined;
    for (size_t d = 0; d < rank; ++d) {
      if (HasTooManyElements({shape[d], multiples[d]})) {
        g.Fail(absl::InvalidArgumentError(absl::StrCat("multiples ", multiples[d], " gives too many elements")));
        return {Value()};
      }
      if (multiples[d] != 1) {
        apart.push_back(1);
        wide.push_back(multiples[d]);
      }
      apart.push_back(shape[d]);
      wide.push_back(shape[d]);
      joined.push_back(shape[d] * multiples[d]);
    }
    return {Reshape(g, BroadcastTo(g, Reshape(g, in[0], apart), wide), joined)};
  });
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"multiples", Ints{2, 3}}}});
  op.AddSample({{{DType::kF32, {3}}}, {{"multiples", Ints{2, 2}}}});
  op.AddSample({{{DType::kF32, {2, 3}}}, {{"multiples", Ints{2}}}});
  return {op};
}

}  // namespace mslua
