#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(input) {
  OpDef op("input");
  op.Doc(
      "A value that is given from outside: a parameter, optimizer state, a batch column, a scalar set between steps.");
  op.Required("name", AttrKind::kString, "by which the value is given")
      .Choice("kind", {kParameter, kState, kData, kScalar},
              "a parameter, a state that a step may replace, a column of the batch, or a number set between steps")
      .Required("dtype", AttrKind::kDType, "of the elements")
      .Required("shape", AttrKind::kInts, "of the value");
  op.AllTypes().SideEffect();
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) {
    std::string rule = "-> ";
    for (size_t d = 0; d < a.Ints("shape").size(); ++d) absl::StrAppend(&rule, "d", d, " ");
    return rule;
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    const Shape& part = c.local_outputs[0].shape;
    Attrs attrs = c.attrs;
    return attrs.Set("shape", std::vector<int64_t>(part.begin(), part.end()));
  });
  op.Infer([](const Attrs& a, absl::Span<const TensorType>) -> StatusOr<std::vector<TensorType>> {
    const auto& shape = a.Ints("shape");
    for (int64_t d : shape) {
      if (d < 0) return absl::InvalidArgumentError("a dimension is negative");
    }
    return std::vector<TensorType>{{a.Type("dtype"), Shape(shape.begin(), shape.end())}};
  });
  return {op};
}

}  // namespace mslua
