#include "core/op/device_scalars.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua {
namespace {

std::string Call(const ScalarInstr& i) {
  const auto v = [&](int k) { return absl::StrCat("v", i.args[k]); };
  switch (i.op) {
    case ScalarOp::kAdd:
      return absl::StrCat(v(0), " + ", v(1));
    case ScalarOp::kSub:
      return absl::StrCat(v(0), " - ", v(1));
    case ScalarOp::kMul:
      return absl::StrCat(v(0), " * ", v(1));
    case ScalarOp::kDiv:
      return absl::StrCat("Div(", v(0), ", ", v(1), ")");
    case ScalarOp::kMin:
      return absl::StrCat("Min<C>(", v(0), ", ", v(1), ")");
    case ScalarOp::kMax:
      return absl::StrCat("Max<C>(", v(0), ", ", v(1), ")");
    case ScalarOp::kPow:
      return absl::StrCat("Pow(", v(0), ", ", v(1), ")");
    case ScalarOp::kEqual:
      return absl::StrCat("(C)(", v(0), " == ", v(1), ")");
    case ScalarOp::kNotEqual:
      return absl::StrCat("(C)(", v(0), " != ", v(1), ")");
    case ScalarOp::kLess:
      return absl::StrCat("(C)(", v(0), " < ", v(1), ")");
    case ScalarOp::kLessEqual:
      return absl::StrCat("(C)(", v(0), " <= ", v(1), ")");
    case ScalarOp::kGreater:
      return absl::StrCat("(C)(", v(0), " > ", v(1), ")");
    case ScalarOp::kGreaterEqual:
      return absl::StrCat("(C)(", v(0), " >= ", v(1), ")");
    case ScalarOp::kAnd:
      return absl::StrCat("(C)(", v(0), " != 0 && ", v(1), " != 0)");
    case ScalarOp::kOr:
      return absl::StrCat("(C)(", v(0), " != 0 || ", v(1), " != 0)");
    case ScalarOp::kNeg:
      return absl::StrCat("-", v(0));
    case ScalarOp::kNot:
      return absl::StrCat("(C)(", v(0), " == 0)");
    case ScalarOp::kSelect:
      return absl::StrCat(v(0), " != 0 ? ", v(1), " : ", v(2));
    default:
      break;
  }
  // The others have one operand and the operator's name: "exp" -> Exp.
  std::string name = Name(i.op);
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return absl::StrCat(name, "(", v(0), ")");
}

}  // namespace

std::string NumberText(double value) {
  if (std::isnan(value)) return "(double)NAN";
  if (std::isinf(value)) return value > 0 ? "(double)INFINITY" : "-(double)INFINITY";
  return absl::StrFormat("%a", value);
}

std::string DeviceScalars(const ScalarProgram& program, const std::vector<std::string>& inputs) {
  std::string text;
  for (size_t v = 0; v < program.code.size(); ++v) {
    const ScalarInstr& instr = program.code[v];
    std::string value;
    if (instr.op == ScalarOp::kInput)
      value = absl::StrCat("(C)", inputs[static_cast<size_t>(instr.args[0])]);
    else
      value = instr.op == ScalarOp::kConst ? absl::StrCat("(C)", NumberText(instr.constant)) : Call(instr);
    absl::StrAppend(&text, "    const C v", v, " = ", value, ";\n");
  }
  return text;
}

}  // namespace mslua
