#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(equal) {
  OpDef op = ComparisonOp("equal", "eq(a, b)");
  op.Class("Equal").Doc("Whether a == b, element by element: bool.");
  return {op};
}

}  // namespace mslua
