#include "core/op/device_scalars.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "core/op/formula.h"

namespace mslua {
namespace {

// A text, or the names of CUDA's functions of a float and of a double, which the function Name(C) of the prelude calls.
struct DeviceForm {
  constexpr explicit DeviceForm(const char* text) : text(text) {}
  constexpr DeviceForm(const char* of_float, const char* of_double) : of_float(of_float), of_double(of_double) {}

  const char* text = nullptr;
  const char* of_float = nullptr;
  const char* of_double = nullptr;
};

struct Row {
  const char* function;
  DeviceForm form;
};
constexpr Row kRows[] = {
#define MSLUA_SCALAR(id, name, short_name, arity, result, cost, number, vector, device, ...) {#id, DeviceForm device},
#include "core/op/scalar_functions-inl.h"
};

std::string Call(const ScalarInstr& i) {
  const auto v = [&](int k) { return absl::StrCat("v", i.args[k]); };
  const Row& row = kRows[static_cast<int>(i.op) - static_cast<int>(ScalarOp::kConst) - 1];
  if (row.form.text == nullptr) return absl::StrCat(row.function, "(", v(0), ")");
  return absl::Substitute(row.form.text, v(0), v(1), v(2));
}

}  // namespace

std::string NumberText(double value) {
  if (std::isnan(value)) return "(double)NAN";
  if (std::isinf(value)) return value > 0 ? "(double)INFINITY" : "-(double)INFINITY";
  return absl::StrFormat("%a", value);
}

std::string DeviceFunctions() {
  std::string text;
  for (const Row& row : kRows) {
    if (row.form.text != nullptr) continue;
    absl::StrAppend(&text, "MSLUA_FUNCTION(", row.function, ", ", row.form.of_float, ", ", row.form.of_double, ")\n");
  }
  return text;
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
