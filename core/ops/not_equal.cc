#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(not_equal) {
  OpDef op = ComparisonOp("not_equal", "not_equal(a, b)");
  op.Class("NotEqual").Doc("Whether a != b, element by element: bool.");
  return {op};
}

}  // namespace mslua
