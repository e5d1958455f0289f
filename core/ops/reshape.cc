#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Dimensions that stand alone or fall into parts keep their factors: [a b, c] -> [a, b, c] is "(d0 d1) d2 -> d0 d1 d2".
// Both shapes are cut where their products meet; a piece with one dimension on either side is a compound, any other
// stays whole. Splitting a compound over devices is legal along its major factor only, so minor ones are marked `!`.
std::string ReshapeRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  const Shape& from = in[0].shape;
  const auto& to = attrs.Ints("shape");
  std::string left, right;
  int factor = 0;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const size_t i0 = i, j0 = j;
    int64_t a = i < from.size() ? from[i++] : 1, b = j < to.size() ? to[j++] : 1;
    while (a != b && (i < from.size() || j < to.size())) {
      if (a < b && i < from.size())
        a *= from[i++];
      else if (j < to.size())
        b *= to[j++];
      else
        break;
    }
    const size_t ni = i - i0, nj = j - j0;
    if (ni == 1 && nj == 1) {
      absl::StrAppend(&left, "f", factor, " ");
      absl::StrAppend(&right, "f", factor, " ");
      ++factor;
    } else if ((ni == 1 && nj > 1) || (nj == 1 && ni > 1)) {
      std::string parts;
      for (size_t k = 0; k < std::max(ni, nj); ++k) absl::StrAppend(&parts, k ? " " : "", k ? "!f" : "f", factor++);
      absl::StrAppend(ni == 1 ? &left : &right, "(", parts, ") ");
      absl::StrAppend(ni == 1 ? &right : &left, parts, " ");
    } else {
      for (size_t k = 0; k < ni; ++k) absl::StrAppend(&left, "!f", factor++, " ");
      for (size_t k = 0; k < nj; ++k) absl::StrAppend(&right, "!f", factor++, " ");
    }
  }
  return absl::StrCat(left, "-> ", right);
}

}  // namespace

MSLUA_OPERATOR(reshape) {
  OpDef op("reshape");
  op.Class("Reshape").Doc("The same elements in the same order under another shape; one dimension may be -1.");
  op.Input("x").AllTypes().Required("shape", AttrKind::kInts, "the result's shape").View();
  op.Rule(ReshapeRule);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const auto& dims = a.Ints("shape");
    Shape shape(dims.begin(), dims.end());
    int64_t known = 1, unknown = -1;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == -1 && unknown < 0)
        unknown = static_cast<int64_t>(d);
      else if (shape[d] < 0)
        return absl::InvalidArgumentError(
            absl::StrCat("bad dimension ", shape[d], " in ", ToString(absl::MakeConstSpan(shape))));
      else
        known *= shape[d];
    }
    if (unknown >= 0 && known > 0) shape[unknown] = in[0].elements() / known;
    if (NumElements(shape) != in[0].elements()) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", in[0].elements(), " elements, which do not fill ", ToString(absl::MakeConstSpan(dims))));
    }
    return std::vector<TensorType>{{in[0].dtype, shape}};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    Attrs attrs = c.attrs;
    const Shape& shape = c.local_outputs[0].shape;
    return attrs.Set("shape", std::vector<int64_t>(shape.begin(), shape.end()));
  });
  op.Grad([](GradContext& c) { return std::vector<Value>{Reshape(c.g, c.dy[0], c.g.TypeOf(c.x(0)).shape)}; });
  op.Reference([](const OpCall& c) {
    std::memcpy(c.outputs[0].data, c.inputs[0].data, static_cast<size_t>(c.outputs[0].type.bytes()));
    return absl::OkStatus();
  });
  op.AddSample({{{DType::kF32, {4, 6}}}, {{"shape", std::vector<int64_t>{4, 2, 3}}}});
  op.AddSample({{{DType::kF32, {2, 3, 4}}}, {{"shape", std::vector<int64_t>{6, -1}}}});
  return {op};
}

}  // namespace mslua
