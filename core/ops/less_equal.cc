#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(less_equal) {
  OpDef op = ComparisonOp("less_equal", "le(a, b)");
  op.Class("LessEqual").Doc("Whether a <= b, element by element: bool.");
  return {op};
}

}  // namespace mslua
