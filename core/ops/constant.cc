#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// "-> d0 d1": every dimension may be split; a device then holds its part of the data.
std::string ConstantRule(const Attrs& attrs, absl::Span<const TensorType>) {
  std::string rule = "-> ";
  for (size_t d = 0; d < attrs.Ints("shape").size(); ++d) absl::StrAppend(&rule, "d", d, " ");
  return rule;
}

StatusOr<Attrs> PartOfConstant(const LocalizeCall& c) {
  const TensorType &whole = c.global_outputs[0], &part = c.local_outputs[0];
  const Shape strides = RowMajorStrides(whole.shape);
  int64_t at = 0;
  for (size_t d = 0; d < strides.size(); ++d) at += c.output_begin[0][d] * strides[d];
  const int64_t size = SizeOf(whole.dtype);
  std::string data(static_cast<size_t>(part.bytes()), '\0');
  StridedCopy(size, part.shape, c.attrs.Str("data").data() + at * size, strides, &data[0], RowMajorStrides(part.shape));
  Attrs attrs = c.attrs;
  return attrs.Set("shape", std::vector<int64_t>(part.shape.begin(), part.shape.end())).Set("data", std::move(data));
}

}  // namespace

MSLUA_OPERATOR(constant) {
  OpDef op("constant");
  op.Doc("A tensor known when the graph is made. `data` is its bytes, row-major.");
  op.Required("dtype", AttrKind::kDType, "of the elements")
      .Required("shape", AttrKind::kInts, "of the tensor")
      .Required("data", AttrKind::kString, "the elements' bytes");
  op.AllTypes().Rule(ConstantRule).Localize(PartOfConstant);
  op.Infer([](const Attrs& a, absl::Span<const TensorType>) -> StatusOr<std::vector<TensorType>> {
    const auto& shape = a.Ints("shape");
    const TensorType type{a.Type("dtype"), Shape(shape.begin(), shape.end())};
    if (type.bytes() != static_cast<int64_t>(a.Str("data").size()))
      return absl::InvalidArgumentError("the data's size is not the type's");
    return std::vector<TensorType>{type};
  });
  op.Reference([](const OpCall& c) {
    const std::string& data = c.attrs.Str("data");
    std::memcpy(c.outputs[0].data, data.data(), data.size());
    return absl::OkStatus();
  });
  op.AddSample({{},
                {{"dtype", DType::kI32},
                 {"shape", std::vector<int64_t>{2, 3}},
                 {"data", std::string("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0", 24)}}});
  return {op};
}

MSLUA_ONNX(constant) {
  const std::string& data = c.attrs().Str("data");
  const std::vector<onnx::Dim> dims = c.DimsOut(0, {"shape"});
  bool fixed = true;
  for (const onnx::Dim& d : dims) fixed = fixed && d.rows == 0;
  if (fixed) {
    if (c.OtherFollows("data")) return c.Result(c.Tensor(c.TypeOut(), data));
    const std::string number = c.NumberOfBatch("data", c.TypeOut().dtype);
    if (number.empty()) return c.Fail("a number in it is made of the size of the batch, such as x.shape[1]");
    return c.Result(c.Reshape(number, dims));
  }
  // One number for every row, or an error.
  const size_t size = static_cast<size_t>(SizeOf(c.TypeOut().dtype));
  for (size_t at = 0; at < data.size(); at += size) {
    if (data.compare(at, size, data, 0, size) != 0) return c.Fail("a tensor of different numbers depends on the batch");
  }
  if (!c.OtherFollows("data")) return c.Fail("its number depends on the batch");
  c.Result(c.Op("Expand", {c.Tensor({c.TypeOut().dtype, {}}, data.substr(0, size)), c.Shape(dims)}));
}

}  // namespace mslua
