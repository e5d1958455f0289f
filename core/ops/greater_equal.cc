#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(greater_equal) {
  OpDef op = ComparisonOp("greater_equal", "ge(a, b)");
  op.Class("GreaterEqual").Doc("Whether a >= b, element by element: bool.");
  return {op};
}

}  // namespace mslua
