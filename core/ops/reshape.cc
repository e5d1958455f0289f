#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/onnx/lowering.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The shape that the attribute says, with its -1 worked out where it can be.
std::vector<int64_t> Wanted(const Attrs& attrs, const TensorType& x) {
  std::vector<int64_t> to = attrs.Ints("shape");
  int64_t known = 1;
  for (int64_t n : to) known *= n == -1 ? 1 : n;
  for (int64_t& n : to) {
    if (n == -1) n = known > 0 ? x.elements() / known : 1;
  }
  return to;
}

// Dimensions that stand alone or fall into parts keep their factors: [a b, c] -> [a, b, c] is "(d0 d1) d2 -> d0 d1 d2".
// Both shapes are split where their products meet; a piece with one dimension on either side is a compound, any other
// stays whole, and so does what follows a size of 0. Splitting a compound over devices is legal along its major factor
// only, so minor ones are marked `!`. Dimensions of size 1 belong to no piece.
std::string ReshapeRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  const Shape& from = in[0].shape;
  const std::vector<int64_t> to = Wanted(attrs, in[0]);
  std::string left, right;
  int factor = 0;
  size_t i = 0, j = 0;
  const auto skip_ones = [&] {
    for (; i < from.size() && from[i] == 1; ++i) left += "1 ";
    for (; j < to.size() && to[j] == 1; ++j) right += "1 ";
  };
  for (skip_ones(); i < from.size() || j < to.size(); skip_ones()) {
    std::vector<int64_t> parts[2];  // the dimensions of this piece, either side; 1 among them stay literal
    int64_t a = 1, b = 1;
    do {
      if (i < from.size() && (a <= b || j >= to.size()))
        a *= parts[0].emplace_back(from[i++]);
      else if (j < to.size())
        b *= parts[1].emplace_back(to[j++]);
    } while ((a != b || a == 0) && (i < from.size() || j < to.size()));
    const auto real = [](const std::vector<int64_t>& side) {
      return std::count_if(side.begin(), side.end(), [](int64_t n) { return n != 1; });
    };
    const bool compound = real(parts[0]) == 1 || real(parts[1]) == 1;
    const int first = factor;
    std::string names;
    const auto side = [&](const std::vector<int64_t>& dims, std::string& text, bool joined) {
      for (int64_t n : dims) {
        if (n == 1) {
          text += "1 ";
        } else if (joined) {
          absl::StrAppend(&text, "(", names, ") ");
        } else {
          const std::string name = absl::StrCat(compound && factor == first ? "" : "!", "f", factor);
          absl::StrAppend(&text, name, " ");
          absl::StrAppend(&names, names.empty() ? "" : " ", name);
          ++factor;
        }
      }
    };
    const bool into_parts = compound && real(parts[0]) == 1;  // the side with more dimensions names the factors
    side(parts[into_parts ? 1 : 0], into_parts ? right : left, false);
    side(parts[into_parts ? 0 : 1], into_parts ? left : right, compound);
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
      else if (__builtin_mul_overflow(known, shape[d], &known))
        return absl::InvalidArgumentError(absl::StrCat(ToString(absl::MakeConstSpan(shape)), " has too many elements"));
    }
    if (unknown >= 0 && known == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(ToString(absl::MakeConstSpan(shape)), " has a size 0: any size may stand for its -1"));
    }
    if (unknown >= 0) shape[unknown] = in[0].elements() / known;
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

MSLUA_ONNX(reshape) { c.Result(c.Reshape(c.In(0), c.DimsOut(0, {"shape"}))); }

}  // namespace mslua
