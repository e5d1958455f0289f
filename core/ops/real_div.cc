#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(real_div) {
  OpDef op("real_div");
  op.Class("RealDiv").Doc("div under its other name.");
  op.Input("a").Input("b");
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs&) -> std::vector<Value> {
    return {Elementwise(g, "div", in)};
  });
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, 0.5, 2});
  return {op};
}

}  // namespace mslua
