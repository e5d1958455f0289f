#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// A composite: the numbers of rows and columns, compared, say which elements stay.
OpDef TriangleOp(std::string name, const char* side, const char* comparison) {
  OpDef op(std::move(name));
  op.Doc(absl::StrCat("The matrices in the last two dimensions of x, with 0 ", side,
                      " the diagonal that `diagonal` names."));
  op.Input("x").AllTypes().Attr("diagonal", AttrKind::kInt, int64_t{0},
                                "0: the main one; above 0: so many places to the right; below 0: to the left");
  op.Check([](const Attrs&, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() >= 2) return absl::OkStatus();
    return absl::InvalidArgumentError("x should have at least 2 dimensions");
  });
  op.Body([comparison](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const TensorType type = g.TypeOf(in[0]);
    const int64_t rows = type.shape[type.rank() - 2], columns = type.shape[type.rank() - 1];
    const double first = static_cast<double>(attrs.Int("diagonal"));
    // f32 has vectors; it counts to 2^24.
    constexpr int64_t kCounted = int64_t{1} << 24;
    const DType places =
        static_cast<double>(rows) + std::abs(first) < kCounted && columns < kCounted ? DType::kF32 : DType::kI64;
    const Value row = g.Op("iota", {}, {{"size", rows}, {"dtype", places}, {"start", first}});
    const Value column = g.Op("iota", {}, {{"size", columns}, {"dtype", places}});
    const Value stays = Elementwise(g, comparison, {Reshape(g, row, {rows, 1}), Reshape(g, column, {1, columns})});
    return {Elementwise(g, "select", {stays, in[0], g.Constant(0, type.dtype)})};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {2, 4, 3}}}, {{"diagonal", int64_t{-1}}}});
  op.AddSample({{{DType::kF32, {4, 4}}}, {{"diagonal", int64_t{2}}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(tril) {
  OpDef lower = TriangleOp("tril", "above", "greater_equal"), upper = TriangleOp("triu", "below", "less_equal");
  lower.Class("Tril");
  upper.Class("Triu");
  return {lower, upper};
}

}  // namespace mslua
