#include "core/ops/define.h"

namespace mslua {

// A composite: the name that PyTorch, NumPy and MindSpore's functions have for select.
MSLUA_OPERATOR(where) {
  OpDef op("where");
  op.Class("Where").Doc("select by its other name: x where condition is true and y elsewhere. All three broadcast.");
  op.Input("condition", TypeClass::kBool).Input("x").Input("y").AllTypes();
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs&) -> std::vector<Value> {
    return {Elementwise(g, "select", {in[0], in[1], in[2]})};
  });
  op.AddSample({{{DType::kBool, {3, 5}}, {DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kBool, {3, 1}}, {DType::kF32, {5}}, {DType::kF32, {}}}});
  return {op};
}

}  // namespace mslua
