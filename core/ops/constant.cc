#include <cstring>

#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(constant) {
  OpDef op("constant");
  op.Doc("A tensor known when the graph is made. `data` is its bytes, row-major.");
  op.Required("dtype", AttrKind::kDType).Required("shape", AttrKind::kInts).Required("data", AttrKind::kString);
  op.AllTypes();
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
  return {op};
}

}  // namespace mslua
