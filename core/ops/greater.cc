#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(greater) {
  OpDef op = ComparisonOp("greater", "gt(a, b)");
  op.Class("Greater").Doc("Whether a > b, element by element: bool.");
  return {op};
}

}  // namespace mslua
