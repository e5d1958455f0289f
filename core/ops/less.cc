#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(less) {
  OpDef op = ComparisonOp("less", "lt(a, b)");
  op.Class("Less").Doc("Whether a < b, element by element: bool.");
  return {op};
}

}  // namespace mslua
