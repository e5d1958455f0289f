#include "core/ops/define.h"

namespace mslua {

// Operators of quotients that are whole numbers. a = q b + r holds of both pairs.
MSLUA_OPERATOR(floor_div) {
  const std::string of_integers = " Of integers a division by 0 gives ";
  const auto pair = [](std::string name, std::vector<std::string> gradient) {
    OpDef op = ElementwiseOp(name, {"a", "b"}, name + "(a, b)", std::move(gradient));
    op.NumericTypes();
    op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, 0.5, 2});
    op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, -2, -0.5});
    return op;
  };
  OpDef floor_div = pair("floor_div", {}), floor_mod = pair("floor_mod", {"dy", "-dy * floor_div(a, b)"});
  OpDef truncate_div = pair("truncate_div", {}), fmod = pair("fmod", {"dy", "-dy * truncate_div(a, b)"});
  floor_div.Class("FloorDiv").Doc("a / b rounded down, as if a / b were exact: Python's a // b." + of_integers + "0.");
  floor_mod.Class("FloorMod").Doc("a - floor_div(a, b) b, of the sign of b: Python's a % b." + of_integers + "a.");
  truncate_div.Class("TruncateDiv").Doc("a / b rounded toward 0, as if a / b were exact." + of_integers + "0.");
  fmod.Class("TruncateMod").Doc("a - truncate_div(a, b) b, of the sign of a, as C's fmod." + of_integers + "a.");
  return {floor_div, floor_mod, truncate_div, fmod};
}

}  // namespace mslua
