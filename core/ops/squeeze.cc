#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(squeeze) {
  OpDef op("squeeze");
  op.Class("Squeeze").Doc(
      "x without its dimensions `axis`, which have size 1; without all such dimensions when none is named.");
  op.Input("x").AllTypes().Attr("axis", AttrKind::kAxes, std::vector<int64_t>{},
                                "the dimensions to drop; none: all of size 1");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    for (int64_t d : a.Ints("axis")) {
      if (in[0].shape[d] != 1)
        return absl::InvalidArgumentError(
            absl::StrCat("dimension ", d + 1, " has size ", in[0].shape[d], ", expected 1"));
    }
    return absl::OkStatus();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& a) -> std::vector<Value> {
    const auto& axes = a.Ints("axis");
    const Shape x = g.TypeOf(in[0]).shape;
    Shape kept;
    for (size_t d = 0; d < x.size(); ++d) {
      const bool drop =
          axes.empty() ? x[d] == 1 : std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
      if (!drop) kept.push_back(x[d]);
    }
    return {Reshape(g, in[0], kept)};
  });
  op.AddSample({{{DType::kF32, {3, 1, 2, 1}}}, {{"axis", std::vector<int64_t>{1}}}});
  op.AddSample({{{DType::kF32, {3, 1, 2, 1}}}});
  return {op};
}

}  // namespace mslua
